// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "buffer/queues/ring.hpp"
#include "native/hosts/flows.h"
#include "native/hosts/frame.h"
#include "native/hosts/stack.h"
#include "native/racks/rack_log.h"
#include "native/simulation.h"
#include "packets/network/event_queue.h"
#include "packets/predictor.h"
#include "packets/racks/fabric.h"
#include "packets/racks/rack_settings.h"
#include "packets/racks/voq_summary.h"
#include "packets/records/arrival_trace.h"

namespace foretail::packets::native {

namespace {

/// A simulation of racks with circuits. The fabric is woken whenever it has
/// something to do; a host gets a packet after all else that was scheduled for the same time.
class RackSimulation final : public Simulation {
public:
    RackSimulation(RackRun run, const std::string& folder)
        : run_(std::move(run)),
          folder_(folder),
          flows_(run_.hosts, plan_long_flows(run_.racks)),
          log_(flows_.ledger(), run_.racks.hosts_per_rack, folder.empty() ? "" : folder + "/etalon.log"),
          predictor_(run_.hosts),
          fabric_(run_.racks, run_.hosts, predictor_, open_trace(), log_),
          stack_(run_.hosts, flows_, frames_, order_, nullptr) {
        await_next(order_.take());
        flows_.install(stack_);
    }

    void advance(std::int64_t until_ns, const Tick& tick) override {
        const std::int64_t stop_ns = std::min(until_ns, end_ns());
        for (;;) {
            const Moment of_hosts = stack_.next(), of_fabric = wake_ups_.next(),
                         of_arrivals = arrivals_.empty() ? Moment{} : arrivals_.front().moment;
            const Moment next = std::min({of_hosts, of_fabric, of_arrivals});
            if (next.time >= stop_ns) break;
            now_ns_ = next.time;
            if (next == of_hosts) {
                stack_.step();
            } else if (next == of_fabric) {
                wake_up();
            } else {
                stack_.receive(*arrivals_.pop_front().frame, now_ns_);
            }
            for (const Stack::Outgoing& sent : stack_.outgoing()) {
                fabric_.send({sent.frame, {&frames_}}, now_ns_);
                await_next(sent.order);
            }
            stack_.outgoing().clear();
            constexpr std::int64_t events_between_ticks = 1 << 14;
            if (++events_ % events_between_ticks == 0 && tick) tick(now_ns_, events_);
        }
        if (stop_ns < end_ns()) return;
        now_ns_ = end_ns();
        over_ = true;
    }
    [[nodiscard]] bool is_over() const override { return over_; }
    [[nodiscard]] std::int64_t now_ns() const override { return now_ns_; }
    [[nodiscard]] std::int64_t end_ns() const override { return run_.hosts.traffic_ns; }
    [[nodiscard]] const FlowLedger& ledger() const override { return flows_.ledger(); }

    [[nodiscard]] std::unique_ptr<Snapshot> save() const override { cannot_be_copied(); }
    void save(Snapshot&) const override { cannot_be_copied(); }
    void restore(const Snapshot&) override { cannot_be_copied(); }

    nlohmann::json finish() override {
        nlohmann::json summary = finish_racks(run_.racks, run_.hosts, fabric_, predictor_, trace_ ? &*trace_ : nullptr);
        log_.close();
        if (!folder_.empty()) ledger().write(folder_ + "/flows.bin");
        const std::int64_t packet_bytes = run_.hosts.packet_bytes(run_.hosts.transport.segment_bytes);
        summary.update({{"format", 1},
                        {"flows", ledger().planned()},
                        {"completed_flows", ledger().completed()},
                        {"end_ns", now_ns_},
                        {"events", events_},
                        {"base_rtt_ns", run_.racks.base_rtt_ns(packet_bytes, run_.hosts.packet_bytes(0))}});
        return summary;
    }

private:
    struct Arriving {
        Frames::Handle frame;
        Moment moment;
    };
    enum class Only { wake_up };  // of the queue, which orders by time and number alone
    static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

    [[noreturn]] static void cannot_be_copied() {
        throw std::invalid_argument("racks with circuits cannot be copied, so there is no snapshot of their runs");
    }
    ArrivalTrace* open_trace() {
        if (run_.hosts.trace && !folder_.empty()) trace_.emplace(folder_ + "/arrivals.bin");
        return trace_ ? &*trace_ : nullptr;
    }
    void wake_up() {
        wake_ups_.pop();
        if (now_ns_ == awaited_ns_) awaited_ns_ = never;
        fabric_.advance(now_ns_, [this](Frames::Handle frame, std::int64_t) {
            arrivals_.push_back({std::move(frame), {now_ns_, order_.take()}});
        });
        await_next(order_.take());
    }
    /// What is awaited later stays in the queue, and will find nothing to do.
    void await_next(std::uint64_t order) {
        const std::int64_t next = fabric_.next_ns();
        if (next >= awaited_ns_) return;
        awaited_ns_ = next;
        wake_ups_.push(next, Only::wake_up, 0, order);
    }

    const RackRun run_;
    const std::string folder_;
    Frames frames_;
    EventOrder order_;
    Flows flows_;
    RackLog log_;
    Predictor predictor_;
    std::optional<ArrivalTrace> trace_;
    RackFabric<Frames::Handle, RackLog> fabric_;
    Stack stack_;
    EventQueue<Only> wake_ups_;
    buffer::Ring<Arriving> arrivals_;  ///< packets that hosts get now
    std::int64_t awaited_ns_ = never, now_ns_ = 0, events_ = 0;
    bool over_ = false;
};

}  // namespace

std::unique_ptr<Simulation> make_rack_simulation(RackRun run, const std::string& folder) {
    return std::make_unique<RackSimulation>(std::move(run), folder);
}

}  // namespace foretail::packets::native

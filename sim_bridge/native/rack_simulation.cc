// SPDX-License-Identifier: MIT
// A run of racks with circuits in the native network, and its log in the form of Etalon's.

#include "native/hosts/stack.h"
#include "native/simulation.h"
#include "packets/racks/rack_logs.h"

namespace foretail::packets::native {

/// A frame with the port of its connection's sender, which is what the beginning of its packet is made of.
struct LoggedFrame {
    std::int32_t source = 0, destination = 0;
    const Frame& frame;
    std::uint16_t sender_port = 0;
};

/// Writes the headers of IPv4 and TCP as they would be on a link into zeros, as far as there is room. Addresses and
/// checksums stay zero, and so does the payload.
inline void copy_beginning(const LoggedFrame& logged, std::span<std::uint8_t> room) {
    constexpr std::uint32_t version_and_words = 0x45, time_to_live = 64, tcp = 6, ip_header_bytes = 20;
    constexpr std::uint32_t window_scale = 9, unscaled_window = 0xffff, scaled_window = 1 << 15;
    const Frame& frame = logged.frame;
    const auto size = static_cast<std::uint32_t>(frame.size_bytes);
    std::size_t at = 0;
    const auto put = [&](std::uint32_t value, int bytes) {
        for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8, ++at) {
            if (at < room.size()) room[at] = static_cast<std::uint8_t>(value >> shift);
        }
    };
    put(version_and_words << 8, 2);
    put(size, 2);
    put(0, 4);
    put(time_to_live << 8 | tcp, 2);
    at = ip_header_bytes;
    put(frame.answer ? listen_port : logged.sender_port, 2);
    put(frame.answer ? logged.sender_port : listen_port, 2);
    put(frame.sequence, 4);
    put(frame.has(ack) ? frame.acknowledged : 0, 4);
    put((size - frame.payload - ip_header_bytes) / 4 << 4, 1);
    put(frame.flags, 1);
    put(frame.has(syn) ? unscaled_window : scaled_window, 2);
    put(0, 4);
    if (frame.has(syn)) {
        put(0x030300 | window_scale, 3);
        put(0x0402, 2);  // selective acknowledgements are permitted
    }
    if (frame.blocks == 0) return;
    put(0x0500 | (2 + 8U * frame.blocks), 2);
    for (const Range& block : std::span(frame.sacked).first(frame.blocks)) {
        put(block.begin, 4);
        put(block.end, 4);
    }
}

/// The log of a fabric of racks, in a file or nowhere.
class RackLog {
public:
    RackLog(const FlowLedger& ledger, int hosts_per_rack, const std::string& path)
        : ledger_(ledger), log_(file_, hosts_per_rack) {
        if (!path.empty()) file_.records.emplace(path);
    }

    void departed(const Frame& frame, std::int64_t entered, std::int64_t left, bool by_circuit, int source,
                  int destination, std::int64_t waiting) {
        if (!file_.records) return;
        const auto c = static_cast<std::size_t>(frame.connection);
        const LoggedFrame logged{frame.source, frame.destination, frame, ledger_.planned_connection(c).source_port};
        log_.departed(logged, entered, left, by_circuit, source, destination, waiting);
    }
    void circuit(bool up, std::int64_t time, int source, int destination) {
        if (file_.records) log_.circuit(up, time, source, destination);
    }
    void close() {
        if (file_.records) file_.records->close();
    }

private:
    struct File {
        std::optional<RecordFile<EtalonRecord>> records;
        void write(const EtalonRecord& record) { records->write(record); }
    };

    const FlowLedger& ledger_;
    File file_;
    EtalonLog<File> log_;
};

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
        wake_ups_.push({{next, order}});
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
    EventQueue wake_ups_;
    buffer::Ring<Arriving> arrivals_;  ///< packets that hosts get now
    std::int64_t awaited_ns_ = never, now_ns_ = 0, events_ = 0;
    bool over_ = false;
};

}  // namespace

std::unique_ptr<Simulation> make_rack_simulation(RackRun run, const std::string& folder) {
    return std::make_unique<RackSimulation>(std::move(run), folder);
}

}  // namespace foretail::packets::native

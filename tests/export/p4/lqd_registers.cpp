// SPDX-License-Identifier: MIT
// What the virtual LQD of sim_bridge/buffer holds after each arrival, private state included, for test_p4_demo.py.
// Everything is int64: in come capacity, overhead, cell_shift, average_shift, ports, their rates and then (time, port,
// size) per arrival; out go the columns below, then each queue's packet sizes behind their number, and at last whether
// each arrival was dropped, those still queued not.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "buffer/features.hpp"
#include "buffer/lqd/virtual_lqd.hpp"

using namespace foretail::buffer;

// An explicit instantiation may name private members: the registers are compared, not only what a feature shows.
template <class Tag, auto Member>
struct Exposed {
    friend auto member(Tag) { return Member; }
};
struct LqdQueues {
    friend auto member(LqdQueues);
};
struct LastPushOuts {
    friend auto member(LastPushOuts);
};
struct Rings {
    friend auto member(Rings);
};
struct Links {
    friend auto member(Links);
};
struct QueueValues {
    friend auto member(QueueValues);
};
struct SumValue {
    friend auto member(SumValue);
};
struct Fraction {
    friend auto member(Fraction);
};
template struct Exposed<LqdQueues, &VirtualLqd::queues_>;
template struct Exposed<LastPushOuts, &LqdSignals::last_push_out_of_>;
template struct Exposed<Rings, &PortQueues<Row>::queues_>;
template struct Exposed<Links, &PortQueues<Row>::links_>;
template struct Exposed<QueueValues, &QueueAverages::queues_>;
template struct Exposed<SumValue, &QueueAverages::sum_>;
template struct Exposed<Fraction, &ShiftAverage::value_>;

namespace {

bool read(std::int64_t& value) { return std::fread(&value, sizeof value, 1, stdin) == 1; }
void write(std::int64_t value) { std::fwrite(&value, sizeof value, 1, stdout); }
void write(const ShiftAverage& average) {
    write(average.*member(Fraction{}));
    write(average.last());
}

}  // namespace

int main() {
    Shape shape;
    std::int64_t overhead = 0, cell_shift = 0, average_shift = 0, ports = 0, bps = 0;
    if (!read(shape.capacity) || !read(overhead) || !read(cell_shift) || !read(average_shift) || !read(ports)) return 1;
    for (std::int64_t i = 0; i < ports; ++i) {
        if (!read(bps)) return 1;
        shape.rates.push_back(LineRate::from_bps(bps, overhead));
    }
    const FeatureScale scale{static_cast<int>(cell_shift), static_cast<int>(average_shift), 10};
    const FeatureSet wanted = FeatureSet::all();
    VirtualLqd lqd(shape, PushOutRules{}, scale, wanted, std::nullopt);
    const auto& queues = lqd.*member(LqdQueues{});
    std::vector<std::int64_t> drops;
    std::int64_t time = 0, port = 0, size = 0;
    for (Row row = 0; read(time) && read(port) && read(size); ++row) {
        std::int64_t events = 0;
        drops.push_back(0);
        const auto fate = [&](Row whose, Tick, bool dropped) {
            events += whose != row;
            drops[static_cast<std::size_t>(whose)] = dropped;
        };
        const Arrival arrival{time, static_cast<Port>(port), size};
        lqd.advance(time, fate);
        lqd.arrive(arrival, row, fate);
        FeatureVector features{};
        read_virtual_features(features, arrival, lqd, 0, scale, wanted);
        write(lqd.kept_last());
        write(events);
        for (const Feature known :
             {Feature::threshold, Feature::threshold_average, Feature::thresholds_sum, Feature::thresholds_sum_average,
              Feature::threshold_max, Feature::queues_over_share, Feature::since_push_out}) {
            write(at(features, known));
        }
        write(lqd.sum());
        write(lqd.averages().*member(SumValue{}));
        for (Port i = 0; i < shape.ports(); ++i) {
            const auto at = static_cast<std::size_t>(i);
            const auto& link = (queues.*member(Links{}))[at];
            const Tick pushed_out = (lqd.*member(LastPushOuts{}))[at];
            const bool ever = pushed_out >= 0;
            write(lqd.threshold(i));
            write(link.packets);
            write(link.busy_until);
            write((lqd.averages().*member(QueueValues{}))[at]);
            write(ever ? pushed_out : 0);
            write(ever);
        }
    }
    for (const auto& queue : queues.*member(Rings{})) {
        write(static_cast<std::int64_t>(queue.data.size()));
        for (std::size_t i = 0; i < queue.data.size(); ++i) write(queue.data[i].size);
    }
    for (const auto dropped : drops) write(dropped);
    return 0;
}

// SPDX-License-Identifier: MIT
// Runs the buffer library with its assertions on (test_headers.py compiles it). `contents` checks containers and events
// of links against the standard library's, `workload` every policy under every rule, `allocations` that packets cost
// none after warm-up, `parameters CELL_SHIFT AVERAGE_SHIFT` prints what a predictor library must state about each
// feature.
#undef NDEBUG
#include <array>
#include <cassert>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "buffer/policies/any_policy.hpp"
#include "buffer/predictor/predictor.hpp"
#include "buffer/queues/containers.hpp"
#include "buffer/records.hpp"
#include "buffer/run.hpp"
#include "packets/network/links.h"

static std::size_t allocations = 0;

// Not inlined, or GCC takes malloc and delete, or new and free, for a mismatched pair.
[[gnu::noinline]] void* operator new(std::size_t size) {
    ++allocations;
    if (void* memory = std::malloc(size)) return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

using namespace foretail::buffer;

/// Those that can decide arrivals that do not say where they came in.
const std::vector<std::string_view> policies = [] {
    std::vector<std::string_view> found;
    for (const KnownPolicy* policy : foretail::buffer::policies()) {
        if (!policy->sees_ingress) found.push_back(policy->name);
    }
    return found;
}();
constexpr Bytes smallest = 64;

struct Setting {
    bool slotted = false;
    PushOutRules rules;
};

SwitchSettings switch_settings(const Setting& setting) {
    SwitchSettings out;
    out.rules = setting.rules;
    out.shape.tie = setting.rules.tie;
    out.shape.preemptive = setting.slotted;
    out.labels = true;
    out.features = FeatureSet::all();
    if (setting.slotted) {
        out.shape.capacity = 50;
        out.shape.rates.assign(7, LineRate::one_per_slot());
        out.scale = {0, 5, 0};
    } else {
        out.shape.capacity = 20'000;
        for (const std::int64_t gbps : {10, 1, 25, 10, 40}) {
            out.shape.rates.push_back(LineRate::from_bps(gbps * 1'000'000'000, 24));
        }
    }
    return out;
}

/// Those of a network; 1 for each that is not among them.
PolicySettings parameters() {
    PolicySettings out{{0.5},
                       {{"first_rtt_alpha", 64},
                        {"rtt", 32'768},
                        {"low_pass", 1 << 19},
                        {"spare_bandwidth", 0.1},
                        {"bucket", 40'000},
                        {"drop_budget", 30'000},
                        {"answers_needed", 3},
                        {"artifact_cut", 1500},
                        {"sampled", 1LL << 60}},  // the first tick alone, for a mirror and a choice allocate
                       {}};
    for (int set = 0; set < 3; ++set) {
        for (const double number : {128.0 * 256, 256.0, 0.0, 0.0, 0.0, 0.0, 0.0}) out.lists["rules"].push_back(number);
    }
    out.lists["rules"].resize(23);
    for (const KnownPolicy* policy : foretail::buffer::policies()) {
        for (const std::string_view name : policy->parameters) out.numbers.emplace(name, 1);
    }
    return out;
}

/// Bursts to one port over a background on all; `n` arrivals from `time` on.
std::vector<Arrival> arrivals(std::mt19937_64& random, const Setting& setting, std::size_t n, Tick& time) {
    const auto ports = switch_settings(setting).shape.ports();
    const auto below = [&](std::uint64_t end) { return static_cast<std::int64_t>(random() % end); };
    std::vector<Arrival> out;
    while (out.size() < n) {
        const auto port = static_cast<Port>(below(static_cast<std::uint64_t>(ports)));
        const auto burst = below(8) == 0 ? 60 : 1 + below(4);
        for (std::int64_t i = 0; i < burst; ++i) {
            const bool data = setting.slotted || below(5) != 0;
            const Bytes size = setting.slotted ? 1 : data ? smallest + below(1437) : smallest;
            out.push_back({time, port, size, data, below(2) == 0, 0, 0, below(2000)});
            if (!setting.slotted) time += below(200);
        }
        time += setting.slotted ? below(3) : below(2000);
    }
    out.resize(n);
    time = out.back().time;
    return out;
}

/// Fills the whole buffer from empty, on one port after the other, with the smallest packets: no queue gets longer.
std::vector<Arrival> longest_queues(const Setting& setting) {
    const auto shape = switch_settings(setting).shape;
    const Bytes size = setting.slotted ? 1 : smallest;
    std::vector<Arrival> out;
    Tick time = 0;
    for (Port port = 0; port < shape.ports(); ++port) {
        for (const bool data : {true, false}) {
            if (!data && setting.slotted) continue;
            for (Bytes bytes = 0; bytes <= shape.capacity; bytes += size) out.push_back({time, port, size, data, true});
            time += 10'000'000;
        }
    }
    return out;
}

std::vector<Setting> settings() {
    std::vector<Setting> out;
    for (const bool slotted : {true, false}) {
        for (const auto counting : {Counting::counted, Counting::uncounted}) {
            for (const auto tie : {Tie::lowest_port, Tie::highest_port}) {
                for (const auto victim : {Victim::tail, Victim::tail_kept, Victim::head, Victim::random}) {
                    out.push_back({slotted, {counting, tie, victim, 5}});
                }
            }
        }
    }
    return out;
}

struct Columns {
    explicit Columns(std::size_t n) : outcome(n), lqd_drop(n), asked(n), exposed(n), features(n) {}
    RunColumns pointers() { return {outcome.data(), lqd_drop.data(), asked.data(), exposed.data(), features.data()}; }
    std::vector<std::uint8_t> outcome, lqd_drop, asked, exposed;
    std::vector<FeatureVector> features;
};

void check_workload() {
    constexpr std::size_t n = 3'000;
    std::array<std::size_t, 5> outcomes{};
    for (const Setting& setting : settings()) {
        std::mt19937_64 random(1);
        Tick time = 0;
        const auto packets = arrivals(random, setting, n, time);
        std::vector<std::uint8_t> predictions(n);
        for (auto& prediction : predictions) prediction = random() % 4 == 0;
        for (const std::string_view policy : policies) {
            Columns columns(n);
            const auto run = recorded_run(policy, parameters(), switch_settings(setting));
            run->begin_batch(columns.pointers());
            run->feed(packets.data(), n, predictions.data());
            run->drain();
            Bytes sent = 0;
            for (std::size_t i = 0; i < n; ++i) {
                ++outcomes[columns.outcome[i]];
                if (packets[i].data && columns.outcome[i] == 0) sent += packets[i].size;
                if (policy == "lqd") assert(columns.lqd_drop[i] == (columns.outcome[i] != 0));
                for (const auto value : columns.features[i]) assert(value >= 0 && value < 1 << 24);
            }
            assert(sent > 0 && run->transmitted_data() == sent);
        }
    }
    for (const std::size_t count : outcomes) assert(count > 0);
}

void check_allocations() {
    constexpr std::size_t n = 100'000;
    for (const Setting& setting : {Setting{true, {}}, Setting{false, {}},
                                   Setting{false, {Counting::uncounted, Tie::highest_port, Victim::head, 0}}}) {
        std::mt19937_64 random(2);
        auto warm_up = longest_queues(setting);
        Tick time = warm_up.back().time + 10'000'000;
        for (const Arrival& arrival : arrivals(random, setting, 1'000, time)) warm_up.push_back(arrival);
        const auto packets = arrivals(random, setting, n, time);
        Columns columns(warm_up.size() + n);
        for (const std::string_view policy : policies) {
            const auto run = recorded_run(policy, parameters(), switch_settings(setting));
            run->begin_batch(columns.pointers());
            run->feed(warm_up.data(), warm_up.size(), nullptr);
            const std::size_t before = allocations;
            assert(before > 0);
            run->feed(packets.data(), n, nullptr);
            run->drain();
            if (allocations != before) {
                std::printf("%s: %zu allocations in %zu arrivals\n", policy.data(), allocations - before, n);
                std::exit(1);
            }
        }
    }
}

void check_contents() {
    std::mt19937_64 random(3);
    Ring<int> ring;
    std::deque<int> expected;
    for (int step = 0; step < 20'000; ++step) {
        const bool growing = step % 1'000 < 600;
        if (random() % 10 < (growing ? 7 : 3)) {
            ring.push_back(step);
            expected.push_back(step);
        } else if (!expected.empty() && random() % 2) {
            assert(ring.pop_front() == expected.front());
            expected.pop_front();
        } else if (!expected.empty()) {
            const std::size_t i = random() % expected.size();
            assert(ring.erase(i) == expected[i]);
            expected.erase(expected.begin() + static_cast<std::ptrdiff_t>(i));
        }
        assert(ring.size() == expected.size() && ring.empty() == expected.empty());
        for (std::size_t i = 0; i < expected.size(); i += 7) assert(ring[i] == expected[i]);
        if (!expected.empty()) assert(ring.front() == expected.front() && ring.back() == expected.back());
    }
    for (Port ports = 1; ports <= 33; ++ports) {
        for (const Tie tie : {Tie::lowest_port, Tie::highest_port}) {
            Tournament tournament(ports, tie, 0);
            std::vector<std::int64_t> keys(static_cast<std::size_t>(ports), 0);
            for (int step = 0; step < 300; ++step) {
                std::size_t winner = 0;
                for (std::size_t i = 1; i < keys.size(); ++i) {
                    if (tie == Tie::lowest_port ? keys[i] > keys[winner] : keys[i] >= keys[winner]) winner = i;
                }
                assert(tournament.winner() == static_cast<Port>(winner) && tournament.best() == keys[winner]);
                const std::size_t port = random() % keys.size();
                keys[port] = random() % 9 == 0 ? Tournament::lowest + 1 : static_cast<std::int64_t>(random() % 5);
                tournament.set(static_cast<Port>(port), keys[port]);
            }
        }
    }
    for (Port ports = 1; ports <= 65; ports += ports < 17 ? 1 : 16) {
        EarliestPort earliest(ports);
        std::vector<Tick> times(static_cast<std::size_t>(ports), EarliestPort::never);
        for (int step = 0; step < 300; ++step) {
            const auto first = std::ranges::min_element(times);
            assert(earliest.time() == *first);
            assert(*first == EarliestPort::never || earliest.port() == static_cast<Port>(first - times.begin()));
            const std::size_t port = random() % times.size();
            times[port] = random() % 3 == 0 ? EarliestPort::never : static_cast<Tick>(random() % 9);
            earliest.set(static_cast<Port>(port), times[port]);
        }
    }
}

/// Events of links, some of them far ahead, and others, against a sorted set.
void check_events() {
    using namespace foretail::packets;
    std::mt19937_64 random(4);
    for (const std::size_t links : {1, 5, 200}) {
        LinkEvents events(links, 5000);
        std::map<std::pair<std::int64_t, std::uint64_t>, std::size_t> expected;
        std::vector<bool> pending(links);
        std::int64_t now = 0;
        for (std::uint64_t step = 0; step < 20'000; ++step) {
            const Moment next = events.front().moment;
            assert(expected.empty() ? next == Moment{}
                                    : next == Moment(expected.begin()->first.first, expected.begin()->first.second));
            if (!expected.empty() && random() % 2 == 0) {
                const Event event = events.pop();
                assert(event.moment == next && event.what == expected.begin()->second);
                if (event.what < links) pending[event.what] = false;
                expected.erase(expected.begin());
                now = next.time;
                continue;
            }
            const std::int64_t time = now + static_cast<std::int64_t>(random() % (random() % 20 == 0 ? 100'000 : 5000));
            const std::size_t what = random() % (links + 1);
            const std::uint64_t order = random() % 9 == 0 ? step : step + (std::uint64_t{1} << 63);
            if (what < links && pending[what]) continue;
            if (what < links) {
                events.push({{time, order}, what});
                pending[what] = true;
            } else {
                events.push_other({{time, order}, what});
            }
            expected.emplace(std::pair(time, order), what);
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view what = argc > 1 ? argv[1] : "";
    if (what == "contents") {
        check_contents();
        check_events();
    } else if (what == "workload") {
        check_workload();
    } else if (what == "allocations") {
        check_allocations();
    } else if (what == "parameters" && argc == 4) {
        for (std::size_t i = 0; i < feature_count; ++i) {
            const FeatureScale scale{std::atoi(argv[2]), std::atoi(argv[3])};
            std::printf("%s\n", feature_parameters(static_cast<Feature>(i), scale).c_str());
        }
    } else {
        return 2;
    }
}

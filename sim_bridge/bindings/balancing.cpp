// SPDX-License-Identifier: MIT
// The balancer of native senders, one connection of it, for those who compare its decisions with others.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bindings/module.hpp"
#include "native/balancer.h"
#include "packets/settings/settings_group.h"

namespace foretail::bindings {

namespace nb = nanobind;

namespace {

class OneBalancer {
public:
    OneBalancer(const std::string& document, std::uint64_t seed) : balancer_(settings(document), seed, 1) {}
    std::pair<std::uint32_t, std::uint32_t> next(std::int64_t now_ns) {
        const auto choice = balancer_.next(0, now_ns);
        return {choice.subflow, choice.path_hash};
    }
    void acknowledged(std::uint32_t subflow, std::int64_t sent_ns, bool marked, std::int64_t now_ns) {
        balancer_.acknowledged(0, {.sent_ns = sent_ns, .subflow = subflow, .marked = marked}, now_ns);
    }
    [[nodiscard]] std::vector<std::uint32_t> entropies() const {
        const auto found = balancer_.entropies(0);
        return {found.begin(), found.end()};
    }
    [[nodiscard]] std::int64_t interval_end_ns() const { return balancer_.interval_end_ns(0); }

private:
    static packets::Balancing settings(const std::string& document) {
        const auto parsed = nlohmann::json::parse(document);
        return packets::read_balancing(packets::Group(parsed, "balancing"));
    }
    packets::native::Balancer balancer_;
};

}  // namespace

void add_balancing(nb::module_& m) {
    using namespace nb::literals;
    nb::class_<OneBalancer>(m, "Balancer", "The balancer of one connection of the native network, which is not ecmp.")
        .def(nb::init<const std::string&, std::uint64_t>(), "settings"_a, "seed"_a)
        .def("next", &OneBalancer::next, "now_ns"_a)
        .def("acknowledged", &OneBalancer::acknowledged, "subflow"_a, "sent_ns"_a, "marked"_a, "now_ns"_a)
        .def("entropies", &OneBalancer::entropies)
        .def("interval_end_ns", &OneBalancer::interval_end_ns);
}

}  // namespace foretail::bindings

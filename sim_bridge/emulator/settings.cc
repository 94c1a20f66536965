// SPDX-License-Identifier: MIT
#include "emulator/settings.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "packets/settings_group.h"

namespace foretail::packets::emulator {
namespace {

using nlohmann::json;

constexpr int most_hosts = 256;
constexpr std::int64_t most_factor = 1'000'000, longest_run_ns = 86'400'000'000'000;

std::string control(const json& group, const char* key) {
    const auto found = group.find(key);
    if (found == group.end() || !found->is_string()) refuse(std::string("setting 'emulation.") + key + "' is no name");
    const auto name = found->get<std::string>();
    const bool plain =
        std::ranges::all_of(name, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; });
    if (name.empty() || name.size() > 15 || !plain)
        refuse(std::string("setting 'emulation.") + key + "' is '" + name + "', which is no congestion control's name");
    return name;
}

std::vector<std::string> read_command(const json& group) {
    const auto found = group.find("command");
    if (found == group.end()) return {};
    if (!found->is_array() || !std::ranges::all_of(*found, [](const json& word) { return word.is_string(); }))
        refuse("setting 'emulation.command' must be a list of words");
    return found->get<std::vector<std::string>>();
}

Emulation read_emulation(const json& document) {
    const auto group = document.find("emulation");
    if (group == document.end() || !group->is_object()) refuse("setting 'emulation' must be an object");
    const auto factor = group->find("factor"), share = group->find("lateness_share");
    if (factor == group->end() || !factor->is_number_integer() || *factor < 1 || *factor > most_factor)
        refuse("setting 'emulation.factor' must be a whole number from 1 to " + std::to_string(most_factor));
    if (share == group->end() || !share->is_number() || !(*share > 0) || *share > 1)
        refuse("setting 'emulation.lateness_share' must be above 0 and at most 1");
    Emulation found{.factor = factor->get<std::int64_t>(),
                    .control = control(*group, "control"),
                    .background_control = control(*group, "background_control"),
                    .tail_loss_probes = Group(*group, "emulation").get<bool>("tail_loss_probes"),
                    .lateness_share = share->get<double>(),
                    .command = read_command(*group)};
    if (!found.command.empty())
        found.command_limit_ns =
            1'000'000'000 * Group(*group, "emulation").between<std::int64_t>("command_seconds", 1, 86'400);
    return found;
}

/// Refuses congestion controls that live on what the switches do not say.
void require_signals(const EmulatorSettings& s) {
    for (const char* key : {"control", "background_control"}) {
        const bool background = std::string_view(key) == "background_control";
        const std::string& name = background ? s.emulation.background_control : s.emulation.control;
        const std::string setting = std::string("setting 'emulation.") + key + "' is " + name;
        if (name == "dctcp" && s.racks) refuse(setting + ", and switches of 'racks' do not mark: choose another");
        if (name == "dctcp" && s.network.transport.mark_bytes == 0)
            refuse(setting + ", which lives on marks: set 'transport.mark_bytes' above 0");
        if (name == "retcp" && !s.racks) refuse(setting + ", which lives on circuits: give 'racks', or choose another");
    }
}

/// Refuses what only ns-3 has.
void require_emulated(const Settings& s, const Emulation& emulation) {
    if (s.topology.servers() > most_hosts)
        refuse("setting 'topology' has " + std::to_string(s.topology.servers()) +
               " servers, and a process each: at most " + std::to_string(most_hosts));
    if (!s.messages.empty()) refuse("setting 'messages' is not emulated: leave out elephants and collectives");
    if (s.incast.reused) refuse("setting 'incast.connections' must be new: reused ones are not emulated");
    if (!s.transport.background_name.empty())
        refuse("setting 'transport.background_name' is ns-3's: set 'emulation.background_control'");
    if (s.transport.delayed_ack_segments > 2)
        refuse("setting 'transport.delayed_ack_segments' must be 1 or 2, which is what Linux does");
    if (s.packet_bytes(s.transport.segment_bytes) > Settings::most_packet_bytes)
        refuse("setting 'transport.segment_bytes' is larger than an emulated packet");
    if (s.transport.min_rto_ns * emulation.factor < 1'000'000)
        refuse("setting 'transport.min_rto_ns' times 'emulation.factor' is less than 1 ms, the least that Linux takes");
    if (s.policy.takes_alpha && !s.policy.library.empty())
        refuse("setting 'policy.predictor' gives alphas, which are not predicted in the emulator");
    if (s.counters) refuse("setting 'counters' must be false: the emulator has no log of intervals");
    if (s.branches) refuse("setting 'branches' must be absent: an emulation cannot be forked");
    const std::int64_t most_ns = longest_run_ns / emulation.factor;
    if (s.traffic_ns > most_ns || s.drain_ns > most_ns || s.incast.connect_ahead_ns > most_ns)
        refuse("settings 'traffic_ns' and 'drain_ns' times 'emulation.factor' are longer than a day");
}

}  // namespace

EmulatorSettings read_emulator_settings(const std::string& path) {
    EmulatorSettings found;
    const json document = read_document(path);
    const Group root(document, "");
    if (root.has("racks")) {
        found.racks = read_racks(root);
        found.network = hosts_of_racks(*found.racks, root);
    } else {
        found.network = read_settings(path);
    }
    found.emulation = read_emulation(document);
    if (found.racks && !found.emulation.command.empty())
        refuse("setting 'emulation.command' must be empty beside 'racks', whose hosts send the flows of 'flows'");
    require_emulated(found.network, found.emulation);
    require_signals(found);
    if (found.racks)
        found.racks->announces_circuits =
            found.emulation.control == "retcp" || found.emulation.background_control == "retcp";
    return found;
}

}  // namespace foretail::packets::emulator

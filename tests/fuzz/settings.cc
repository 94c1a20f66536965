// SPDX-License-Identifier: MIT
// The settings of the ns-3 driver under libFuzzer: whatever the text, they are read or refused with a message.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>

#include "packets/racks/rack_settings.h"
#include "packets/settings/settings.h"
#include "packets/settings/settings_group.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const int file = memfd_create("settings", 0);
    static const std::string path = "/proc/self/fd/" + std::to_string(file);
    if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) __builtin_trap();
    try {
        using namespace foretail::packets;
        const nlohmann::json document = read_document(path);
        if (document.is_object() && document.contains("racks")) {
            const Group root(document, "");
            static_cast<void>(read_racks(root));
            static_cast<void>(read_hosts_of_racks(root));
        } else {
            static_cast<void>(read_settings(Group(document, "")));
        }
    } catch (const std::exception& error) {
        if (std::string(error.what()).empty()) __builtin_trap();
    }
    return 0;
}

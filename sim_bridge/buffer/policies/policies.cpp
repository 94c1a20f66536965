// SPDX-License-Identifier: MIT
// The one list of the policies.
#include "buffer/policies/policies.hpp"

#include <dlfcn.h>

#include "buffer/policies/any_policy.hpp"

namespace foretail::buffer {

namespace {

template <class... Policy>
constexpr std::array<const KnownPolicy*, sizeof...(Policy)> list = {&PolicyOf<Policy>::known...};
constexpr auto& own = list<CompleteSharing, CompletePartitioning, DynamicThresholds, Harmonic, Abm, Reverie, Sonic,
                           Occamy, PushOut, FollowLqd, Credence, Guarded, Learned, CredenceArtifact, Chosen>;

/// The policy of a library, which stays loaded: the policy's code is in it.
const KnownPolicy& policy_of_library(const std::string& path) {
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) throw std::invalid_argument("cannot load the policy library '" + path + "': " + dlerror());
    // POSIX guarantees that a function pointer survives dlsym's void pointer.
    using Get = const KnownPolicy*(const std::size_t*);
    const auto policy = reinterpret_cast<Get*>(dlsym(handle, "foretail_guest_policy"));
    if (!policy) throw std::invalid_argument("'" + path + "' is not a policy library");
    if (const KnownPolicy* known = policy(guest_layout.data())) return *known;
    throw std::invalid_argument("the policy library '" + path +
                                "' was compiled with other headers: install foretail again");
}

}  // namespace

std::span<const KnownPolicy* const> policies() { return own; }

const KnownPolicy& known_policy(std::string_view name) {
    if (name.find('/') != std::string_view::npos) return policy_of_library(std::string(name));
    std::vector<std::string_view> names;
    for (const KnownPolicy* one : own) names.push_back(one->name);
    return *own[position(name, names, "unknown policy '" + std::string(name) + "'")];
}

}  // namespace foretail::buffer

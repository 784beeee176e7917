#include "behaviour.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace fake {
namespace {

constexpr Model kModels[] = {
    {75, "Fake T4", 40, 65536},      {80, "Fake A100", 108, 166912},
    {86, "Fake A10", 72, 101376},    {87, "Fake Orin", 16, 166912},
    {89, "Fake L4", 58, 101376},     {90, "Fake H100", 132, 232448},
    {100, "Fake B200", 148, 232448}, {103, "Fake B300", 148, 232448},
    {120, "Fake RTX", 170, 101376},  {121, "Fake GB10", 48, 101376},
};

std::mutex lock;
std::map<std::string, int64_t> calls;
std::string refusal;

std::string Setting(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    if (comma > at) parts.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

Model ModelOf(const std::string& capability) {
  const size_t dot = capability.find('.');
  const int32_t arch = std::atoi(capability.c_str()) * 10 +
                       (dot == std::string::npos ? 0 : std::atoi(capability.c_str() + dot + 1));
  for (const Model& model : kModels) {
    if (model.arch == arch) return model;
  }
  return {arch, "Fake GPU", 32, 101376};
}

std::string Uuid(const char* kind, bool of_parent, int32_t number) {
  char text[64];
  std::snprintf(text, sizeof text, "%s00000000-0000-0000-0000-%s00000000%02x", kind,
                of_parent ? "80" : "00", number + 1);
  return text;
}

// Whether `entry` is a name of `device`: a GPU's may be shortened, a MIG instance's never. The
// instance's old name is that of its GPU and two numbers.
bool IsNamed(const Device& device, const std::string& entry) {
  if (device.mig) {
    return entry == Uuid("MIG-", false, device.number) ||
           entry == Uuid("MIG-GPU-", true, device.number) + "/1/0";
  }
  return entry.size() > 4 && Uuid("GPU-", false, device.number).rfind(entry, 0) == 0;
}

// The device that an entry of CUDA_VISIBLE_DEVICES names among `all`, or -1.
int32_t Named(const std::string& entry, const std::vector<Device>& all, bool by_uuid) {
  const int32_t count = static_cast<int32_t>(all.size());
  if (!by_uuid) {
    char* end = nullptr;
    const int64_t index = std::strtoll(entry.c_str(), &end, 10);
    return end == entry.c_str() || index < 0 || index >= count ? -1 : static_cast<int32_t>(index);
  }
  int32_t found = -1;
  for (int32_t i = 0; i < count; ++i) {
    if (!IsNamed(all[static_cast<size_t>(i)], entry)) continue;
    if (found >= 0) return -1;  // shortened too far
    found = i;
  }
  return found;
}

// Leaves the devices that CUDA_VISIBLE_DEVICES lists: the list ends at its first invalid entry, and
// a device listed twice hides all.
void Hide(Behaviour* behaviour) {
  const char* value = std::getenv("CUDA_VISIBLE_DEVICES");
  if (value == nullptr) return;
  std::vector<Device> all;
  all.swap(behaviour->devices);
  const std::string text = std::string(value) + ",";
  const bool by_uuid = text.rfind("GPU-", 0) == 0 || text.rfind("MIG-", 0) == 0;
  for (size_t at = 0; at < text.size(); at = text.find(',', at) + 1) {
    const int32_t number = Named(text.substr(at, text.find(',', at) - at), all, by_uuid);
    if (number < 0) return;
    for (const Device& other : behaviour->devices) {
      if (other.number != number) continue;
      behaviour->devices.clear();
      return;
    }
    behaviour->devices.push_back(all[static_cast<size_t>(number)]);
  }
}

// The devices of FAKECUDA_DEVICES, those of FAKECUDA_MIG as instances with a part of the GPU.
std::vector<Device> Devices() {
  std::vector<Device> devices;
  const std::string capabilities = Setting("FAKECUDA_DEVICES", "8.0");
  if (capabilities == "none") return devices;
  for (const std::string& capability : Split(capabilities)) {
    devices.push_back({ModelOf(capability), static_cast<int32_t>(devices.size()), false});
  }
  const std::string instances = Setting("FAKECUDA_MIG", "");
  const std::vector<std::string> listed = Split(instances);
  for (Device& device : devices) {
    const std::string number = std::to_string(device.number);
    device.mig =
        instances == "all" || std::find(listed.begin(), listed.end(), number) != listed.end();
    if (device.mig) device.model.processors /= 8;
  }
  return devices;
}

Behaviour Read() {
  Behaviour behaviour;
  behaviour.devices = Devices();
  Hide(&behaviour);
  behaviour.version = std::atoi(Setting("FAKECUDA_VERSION", "12040").c_str());
  behaviour.kernels = Setting("FAKECUDA_KERNELS", "");
  behaviour.log = Setting("FAKECUDA_LOG", "");
  for (const std::string& rule : Split(Setting("FAKECUDA_FAIL", ""))) {
    const size_t equals = rule.find('=');
    if (equals != std::string::npos) {
      behaviour.fail[rule.substr(0, equals)] = rule.substr(equals + 1);
    }
  }
  return behaviour;
}

// One write a line, so that the lines of threads and processes never mix.
void Log(const std::string& text) {
  const std::string& path = GetBehaviour().log;
  if (path.empty()) return;
  const std::string line =
      std::to_string(getpid()) + " " + std::to_string(syscall(SYS_gettid)) + " " + text + "\n";
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) return;
  if (write(file, line.data(), line.size()) < 0) std::abort();
  close(file);
}

// As a thread stuck in the kernel: no signal reaches it but those that nobody can block.
[[noreturn]] void Hang(bool deaf) {
  sigset_t all;
  sigfillset(&all);
  if (deaf) sigprocmask(SIG_BLOCK, &all, nullptr);  // of this thread, on Linux
  while (true) pause();
}

Result Act(const std::string& action) {
  if (action == "segv") return kDieOfNull;
  if (action == "gp") return kDieOfWildPointer;
  if (action == "abort") return kDieOfAbort;
  if (action.rfind("exit:", 0) == 0) std::exit(std::atoi(action.c_str() + 5));
  if (action == "hang" || action == "deaf") Hang(action == "deaf");
  if (action.rfind("slow:", 0) == 0) {
    usleep(1000 * static_cast<useconds_t>(std::atoi(action.c_str() + 5)));
    return 0;
  }
  return std::atoi(action.c_str());
}

}  // namespace

const Behaviour& GetBehaviour() {
  static const Behaviour* behaviour = new Behaviour(Read());
  return *behaviour;
}

Result Enter(const char* call) {
  Log(call);
  {
    const std::lock_guard<std::mutex> hold(lock);
    ++calls[call];
  }
  const auto& rules = GetBehaviour().fail;
  auto rule = rules.find(call);
  if (rule == rules.end()) rule = rules.find("*");
  return rule == rules.end() ? 0 : Act(rule->second);
}

void Note(const std::string& what) { Log(what); }

Result Refuse(Result result, const char* call, const std::string& why) {
  Log("refused " + std::string(call) + ": " + why);
  const std::lock_guard<std::mutex> hold(lock);
  refusal = why;
  return result;
}

int64_t CallCount(const std::string& call) {
  const std::lock_guard<std::mutex> hold(lock);
  const auto found = calls.find(call);
  return found == calls.end() ? 0 : found->second;
}

const char* LastRefusal() {
  static thread_local std::string copy;
  const std::lock_guard<std::mutex> hold(lock);
  copy = refusal;
  return copy.c_str();
}

}  // namespace fake

#pragma GCC visibility push(default)
extern "C" __attribute__((constructor)) void fakecuda_load() {
  fake::Log("load");
  const auto rule = fake::GetBehaviour().fail.find("load");
  if (rule != fake::GetBehaviour().fail.end()) fake::Leave(fake::Act(rule->second));
}
#pragma GCC visibility pop

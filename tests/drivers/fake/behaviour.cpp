#include "behaviour.h"

#include <fcntl.h>
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

// The device that an entry of CUDA_VISIBLE_DEVICES names among `count`, or -1.
int32_t Named(const std::string& entry, int32_t count, bool by_uuid) {
  if (!by_uuid) {
    char* end = nullptr;
    const int64_t index = std::strtoll(entry.c_str(), &end, 10);
    return end == entry.c_str() || index < 0 || index >= count ? -1 : static_cast<int32_t>(index);
  }
  int32_t found = -1;
  for (int32_t i = 0; i < count; ++i) {
    char uuid[48];
    std::snprintf(uuid, sizeof uuid, "GPU-00000000-0000-0000-0000-0000000000%02x", i + 1);
    if (entry.size() < 5 || std::string(uuid).rfind(entry, 0) != 0) continue;
    if (found >= 0) return -1;  // shortened too far
    found = i;
  }
  return found;
}

// Leaves the devices that CUDA_VISIBLE_DEVICES lists: the list ends at its first invalid entry, and
// a device listed twice hides all.
void Hide(Behaviour* behaviour) {
  const auto all = behaviour->devices;
  const int32_t count = static_cast<int32_t>(all.size());
  const char* value = std::getenv("CUDA_VISIBLE_DEVICES");
  for (int32_t i = 0; value == nullptr && i < count; ++i) behaviour->numbers.push_back(i);
  if (value == nullptr) return;
  behaviour->devices.clear();
  const std::string text = std::string(value) + ",";
  const bool by_uuid = text.rfind("GPU-", 0) == 0 || text.rfind("MIG-", 0) == 0;
  for (size_t at = 0; at < text.size(); at = text.find(',', at) + 1) {
    const int32_t number = Named(text.substr(at, text.find(',', at) - at), count, by_uuid);
    if (number < 0) return;
    for (const int32_t other : behaviour->numbers) {
      if (other != number) continue;
      behaviour->devices.clear();
      behaviour->numbers.clear();
      return;
    }
    behaviour->numbers.push_back(number);
    behaviour->devices.push_back(all[static_cast<size_t>(number)]);
  }
}

Behaviour Read() {
  Behaviour behaviour;
  const std::string devices = Setting("FAKECUDA_DEVICES", "8.0");
  if (devices != "none") {
    for (const std::string& capability : Split(devices)) {
      behaviour.devices.push_back(ModelOf(capability));
    }
  }
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

Result Act(const std::string& action) {
  if (action == "segv") {
    int* volatile nowhere = nullptr;
    *nowhere = 1;
  }
  if (action == "abort") std::abort();
  if (action.rfind("exit:", 0) == 0) _exit(std::atoi(action.c_str() + 5));
  while (action == "hang") pause();
  if (action.rfind("slow:", 0) == 0) {
    usleep(1000 * static_cast<useconds_t>(std::atoi(action.c_str() + 5)));
    return 0;
  }
  return std::atoi(action.c_str());
}

__attribute__((constructor)) void Loaded() {
  Log("load");
  const auto rule = GetBehaviour().fail.find("load");
  if (rule != GetBehaviour().fail.end()) Act(rule->second);
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

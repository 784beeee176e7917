#include "behaviour.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
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

Behaviour Read() {
  Behaviour behaviour;
  const std::string devices = Setting("FAKECUDA_DEVICES", "8.0");
  if (devices != "none") {
    for (const std::string& capability : Split(devices)) {
      behaviour.devices.push_back(ModelOf(capability));
    }
  }
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

// A product of fp32 matrices as a runner: nearpeak measure gemm m=64 n=64 k=64 dtype=fp32 --runner process:./product
// It answers the protocol of docs/guide/measurement.md. What it reads of each line it finds by its key, which is
// enough here: nearpeak writes keys once, and neither keys nor paths hold quotes.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

using Floats = std::vector<float>;

static std::string after(const std::string& line, const std::string& key, size_t from = 0) {
    size_t at = line.find("\"" + key + "\"", from);
    if (at == std::string::npos) return "";
    at = line.find_first_not_of(" :", at + key.size() + 2);
    if (line[at] != '"') return line.substr(at, line.find_first_of(",}", at) - at);
    return line.substr(at + 1, line.find('"', at + 1) - at - 1);
}

static Floats tensor(const std::string& line, const std::string& name, size_t count) {
    Floats found(count);
    std::ifstream file(after(line, "file", line.find("\"" + name + "\"", line.find("\"inputs\""))), std::ios::binary);
    file.read(reinterpret_cast<char*>(found.data()), count * sizeof(float));
    return found;
}

static std::string unsupported(const std::string& line) {
    for (auto [key, only] : {std::pair{"op", "gemm"}, {"dtype", "fp32"}, {"out_dtype", "fp32"}, {"layout", "nn"},
                             {"phase", "forward"}, {"batch", "1"}, {"bias_elements", "0"}})
        if (auto found = after(line, key); !found.empty() && found != only)
            return std::string(key) + " " + found + "; it computes " + only;
    return "";
}

int main() {
    std::string line;
    size_t m = 0, n = 0, k = 0;
    Floats a, b, y;
    while (std::getline(std::cin, line)) {
        std::string what = after(line, "do");
        if (what == "close") break;
        if (what == "prepare") {
            if (auto why = unsupported(line); !why.empty()) {
                std::cout << "{\"unsupported\": \"" << why << "\"}" << std::endl;
                continue;
            }
            m = std::stoul(after(line, "m")), n = std::stoul(after(line, "n")), k = std::stoul(after(line, "k"));
            a = tensor(line, "a", m * k), b = tensor(line, "b", k * n), y = Floats(m * n);
            std::cout << "{\"algorithm\": \"row by row\", \"protocol\": 1, \"changes\": true}" << std::endl;
        } else if (what == "change") {
            size_t at = std::stoul(after(line, "at"));
            std::ifstream file(after(line, "file"), std::ios::binary);
            file.seekg(at * sizeof(float)).read(reinterpret_cast<char*>(&(after(line, "input") == "a" ? a : b)[at]),
                                                sizeof(float));
            std::cout << "{}" << std::endl;
        } else if (what == "run") {
            auto start = std::chrono::steady_clock::now();
            for (long call = std::stol(after(line, "call_count")); call > 0; --call) {
                y.assign(m * n, 0.0f);
                for (size_t i = 0; i < m; ++i)
                    for (size_t l = 0; l < k; ++l)
                        for (size_t j = 0; j < n; ++j) y[i * n + j] += a[i * k + l] * b[l * n + j];
            }
            std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
            std::printf("{\"time_s\": %.9f}\n", took.count());
            std::fflush(stdout);
        } else if (what == "flush") {
            static std::vector<double> swept(12u << 20, 1.0);
            volatile double sum = 0;
            for (double one : swept) sum = sum + one;
            std::cout << "{}" << std::endl;
        } else if (what == "outputs") {
            std::string path = after(line, "folder") + "/y.bin";
            std::ofstream(path, std::ios::binary).write(reinterpret_cast<char*>(y.data()), y.size() * sizeof(float));
            std::cout << "{\"outputs\": {\"y\": {\"file\": \"" << path << "\", \"dtype\": \"fp32\", \"shape\": [1, " << m
                      << ", " << n << "]}}}" << std::endl;
        } else {
            std::cout << "{\"error\": \"" << what << " is not known\"}" << std::endl;
        }
    }
}

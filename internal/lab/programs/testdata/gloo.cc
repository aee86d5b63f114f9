// Two ranks of Gloo add up vectors over the ibverbs transport. Arguments: the device, the rank, and a folder in which the
// ranks find each other.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <gloo/allreduce_ring_chunked.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	int rank = std::atoi(argv[2]);
	auto device = gloo::transport::ibverbs::CreateDevice(gloo::transport::ibverbs::attr{argv[1], 1, 0});
	auto context = std::make_shared<gloo::rendezvous::Context>(rank, 2);
	gloo::rendezvous::FileStore store(argv[3]);
	context->connectFullMesh(store, device);
	std::vector<float> numbers(1 << 20);
	gloo::AllreduceRingChunked<float> sum(context, {numbers.data()}, numbers.size());
	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < numbers.size(); i++)
			numbers[i] = (rank + 1) * (i % 1000);
		sum.run();
		for (size_t i = 0; i < numbers.size(); i++)
			if (numbers[i] != 3 * (i % 1000)) {
				std::printf("element %zu: %g\n", i, numbers[i]);
				return 1;
			}
	}
	std::puts("all is well");
	std::fflush(stdout);
	// Gloo aborts when it destroys a buffer before the completion of its last send.
	store.set("end" + std::to_string(rank), {1});
	store.wait({"end0", "end1"});
	std::quick_exit(0);
}

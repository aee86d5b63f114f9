cd "$scratch"
mkdir /run/netns
ip netns add left
ip link add veth0 netns left type veth peer name right
ip -n left link set veth0 up

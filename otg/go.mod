module roced.io/roced/otg

go 1.26.0

require github.com/open-traffic-generator/snappi/gosnappi v1.48.0

require (
	github.com/google/gopacket v1.1.19
	golang.org/x/sys v0.49.0
	google.golang.org/protobuf v1.36.12
	roced.io/roced v0.0.0
)

require (
	github.com/vishvananda/netlink v1.3.1 // indirect
	github.com/vishvananda/netns v0.0.5 // indirect
	golang.org/x/net v0.59.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260128011058-8636f8732409 // indirect
	google.golang.org/grpc v1.79.1 // indirect
)

replace roced.io/roced => ../

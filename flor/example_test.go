package flor_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"roced.io/roced/flor"
	"roced.io/roced/internal/lab"
)

// TestMain runs a daemon with two connected NICs, rxe_a and rxe_b, for the example.
func TestMain(m *testing.M) {
	w, err := lab.StartWithin("flor")
	if err != nil {
		panic(err)
	}
	os.Setenv("ROCED_RUN_DIR", w.RunDir)
	code := m.Run()
	_ = w.Stop()
	os.RemoveAll(w.Dir)
	os.Exit(code)
}

// Example runs a server that answers calls, and a client. The two use two NICs of one host; usually they are programs
// on two hosts.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	served := make(chan error, 1)
	l, err := listen()
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() { served <- serve(ctx, l) }()
	if err := ask(ctx, l.Addr()); err != nil {
		fmt.Println(err)
	}
	if err := <-served; err != nil {
		fmt.Println(err)
	}
	// Output: Hello, world
}

func listen() (*flor.Listener, error) {
	dev, err := flor.Open(flor.Config{Device: "rxe_b"})
	if err != nil {
		return nil, err
	}
	return dev.Listen(netip.MustParseAddrPort("198.18.0.2:7471"))
}

// serve answers the calls of one client.
func serve(ctx context.Context, l *flor.Listener) error {
	defer l.Close()
	c, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	for {
		request, err := c.Recv(ctx)
		if err != nil {
			return nil // the client has closed
		}
		answer, err := c.NewMessage(ctx, 100)
		if err != nil {
			return err
		}
		answer.Data = fmt.Appendf(answer.Data[:0], "Hello, %s", request.Data)
		if err := request.Reply(ctx, answer); err != nil {
			return err
		}
		request.Release()
	}
}

// ask calls the server once, through the first NIC.
func ask(ctx context.Context, at netip.AddrPort) error {
	c, err := flor.Dial(ctx, at)
	if err != nil {
		return err
	}
	request, err := c.NewMessage(ctx, 5)
	if err != nil {
		return err
	}
	copy(request.Data, "world")
	answer, err := c.Call(ctx, request)
	if err != nil {
		return err
	}
	fmt.Printf("%s\n", answer.Data)
	answer.Release()
	return c.Shutdown(ctx)
}

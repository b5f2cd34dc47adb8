package e2e

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"navarch.io/navarch/store/kv/kvtest"
)

var (
	ringLine = regexp.MustCompile(`time=(\S+) .*msg=ring version=\d+ replicas=(\d+) moved=(\d+)`)
	readLine = regexp.MustCompile(`time=(\S+) .*msg="listed the store"`)
)

// wroteRing is a ring that a leader wrote, as its log has it.
type wroteRing struct {
	at              time.Time
	replicas, moved int
}

func (d *daemon) wroteRings(t *testing.T) (rings []wroteRing) {
	t.Helper()
	for _, m := range ringLine.FindAllStringSubmatch(d.log.String(), -1) {
		at, err := time.Parse(time.RFC3339Nano, m[1])
		if err != nil {
			t.Fatal(err)
		}
		replicas, _ := strconv.Atoi(m[2]) // digits
		moved, _ := strconv.Atoi(m[3])
		rings = append(rings, wroteRing{at, replicas, moved})
	}
	return rings
}

// A replica that is new is in no ring before it has been ready for a while; then it takes its share in several rings, the first
// of which gives it but a part, and none takes anything back.
func TestNewReplicaRampsUp(t *testing.T) {
	store := "--etcd-endpoints=" + kvtest.Start(t).Endpoint()
	leader := start(t, "--roles=ingest", "--config-dir", folder(t), store)
	first := start(t, "--roles=xds", store, "--replica-ramp", "0s")
	settled(t, first)
	second := start(t, "--roles=xds", store, "--replica-ramp", "12s")
	var shards int
	eventually(t, patience, func() error {
		page, err := first.ring()
		if err != nil {
			return err
		}
		for _, m := range page.Members {
			if m.Address == second.grpc {
				shards = m.Shards
			}
		}
		if shards < 110 {
			return fmt.Errorf("the new replica has %d shards, want half of 256", shards)
		}
		return nil
	})
	read := readLine.FindStringSubmatch(second.log.String())
	if read == nil {
		t.Fatal("it does not say when it had read the store")
	}
	before, err := time.Parse(time.RFC3339Nano, read[1]) // it was ready
	if err != nil {
		t.Fatal(err)
	}
	var parts []int
	sum := 0
	for _, r := range leader.wroteRings(t) {
		if r.replicas < 2 || sum >= shards { // written meanwhile
			continue
		}
		if waited := r.at.Sub(before); len(parts) == 0 && waited < 3*time.Second {
			t.Errorf("it was in a ring %v after it had read the store, want 3 s at least", waited)
		}
		parts, sum = append(parts, r.moved), sum+r.moved
	}
	t.Logf("shards taken over by ring: %v", parts)
	if len(parts) < 2 || parts[0] > 100 || sum != shards {
		t.Errorf("%d shards were taken over in rings of %v: want several, with less than all in the first, and none back", shards, parts)
	}
}

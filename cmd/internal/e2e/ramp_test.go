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

// A new replica joins no ring until it has been ready for a while. Then it gets its share in several rings, of which
// the first assigns only a part. No ring moves a shard back.
func TestNewReplicaRampsUp(t *testing.T) {
	parallel(t)
	store := "--etcd-endpoints=" + kvtest.Start(t).Endpoint()
	leader := start(t, "--roles=ingest", "--config-dir", folder(t), store)
	first := start(t, "--roles=xds", store, "--replica-ramp", "0s")
	settled(t, first)
	second := start(t, "--roles=xds", store, "--replica-ramp", "16s")
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
	before, err := time.Parse(time.RFC3339Nano, read[1]) // the time at which it was ready
	if err != nil {
		t.Fatal(err)
	}
	var joined []wroteRing
	eventually(t, patience, func() error { // the log is written after the ring
		joined = nil
		left := shards
		for _, r := range leader.wroteRings(t) {
			if r.replicas == 2 && left > 0 {
				joined, left = append(joined, r), left-r.moved
			}
		}
		if left != 0 {
			return fmt.Errorf("%d shards more were moved than it has, by %+v", -left, joined)
		}
		return nil
	})
	t.Logf("rings: %+v", joined)
	if waited := joined[0].at.Sub(before); waited < 3*time.Second {
		t.Errorf("it was in a ring %v after it had read the store, want 3 s at least", waited)
	}
	if len(joined) < 2 || joined[0].moved > 100 {
		t.Errorf("it took its share in rings of %+v: want several, with a part in the first", joined)
	}
}

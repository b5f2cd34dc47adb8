package endpoint

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// randomMembers returns members of which many differ in their address alone.
func randomMembers(r *rand.Rand, n int) (all []model.Member) {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	for i := range n {
		e := &model.Endpoint{Address: pick("", "fd00::", "unix:///", "10.0.") + fmt.Sprintf("%d.%d", i/200, i%200), Namespace: pick("a", "b"), Workload: pick("", "w"),
			Health: model.Health(r.IntN(4)), Weight: uint32(r.IntN(3)), Locality: pick("", "r/z", "r/y/x"), Cluster: pick("", "east"), Mtls: r.IntN(2) == 0,
			Labels: map[string]string{"app": pick("x", "y"), "version": pick("1", "2", "")}}
		if e.Address[0] != 'u' && e.Address[:2] != "10" {
			e.Address = fmt.Sprintf("fd00::%x", i+1)
		}
		all = append(all, model.Member{Endpoint: e, Port: uint32(r.IntN(70000))})
	}
	return all
}

// The shared encoding of endpoints has the bytes that encoding each message has.
func TestEncoderSaysTheSame(t *testing.T) {
	var members intern.Table[model.Member]
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := Spec{Cluster: "outbound|80||h", Members: members.List(randomMembers(r, 60)...), AllPlain: r.IntN(2) == 0}
		got, err := s.Build()
		if err != nil {
			t.Fatal(err)
		}
		want, err := xds.Encode(xds.Endpoint, s.Cluster, Assignment(s, IsAddress))
		if err != nil || got.Version != want.Version {
			t.Fatalf("seed %d: other bytes (%v)\n%x\n%x", seed, err, got.Body(), want.Body())
		}
	}
}

// The memory for encoded endpoints grows with them: a service with one endpoint has less than 256 bytes, and one with
// many has slabs of at most slabSize.
func TestSlabsGrowWithTheEndpoints(t *testing.T) {
	var c encoder
	slabs, last := 0, 0
	for i := range 10_000 {
		c.lbEndpoint(model.Member{Endpoint: &model.Endpoint{Address: fmt.Sprintf("10.0.%d.%d", i/200, i%200)}, Port: 80}, 1, false)
		if i == 0 && cap(c.slab) >= 256 {
			t.Errorf("%d bytes for one endpoint", cap(c.slab))
		}
		if len(c.slab) < last || i == 0 {
			slabs++
		}
		last = len(c.slab)
	}
	if slabs > 25 || cap(c.slab) != slabSize {
		t.Errorf("%d slabs, the last of %d bytes", slabs, cap(c.slab))
	}
}

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

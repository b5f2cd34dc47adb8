package e2e

import (
	"fmt"
	"syscall"
	"testing"

	sim "navarch.io/navarch/loadtest/proxy"

	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/programs"
)

// noveltyBinary builds a navarchd that knows one additional kind from level 2 on, of which each Gateway is also a
// record. It panics over a subset named poison.
func noveltyBinary(t testing.TB) string {
	t.Helper()
	return programs.Changed(t, "novelty",
		programs.Edit{File: "store/model/model.go", Text: "\tNumKinds ", By: "\tKindNovelty\n\tNumKinds "},
		programs.Edit{File: "store/model/model.go", Text: `{"Secret", "", ""},`,
			By: `{"Secret", "", ""}, KindNovelty: {"Novelty", GroupNetworking, "Gateway"},`},
		programs.Edit{File: "store/model/mark.go", Text: "Marks = [NumKinds]Mark{", By: "Marks = [NumKinds]Mark{KindNovelty: Skippable,"},
		programs.Edit{File: "store/model/level.go", Text: "const Level = 1", By: "const Level = 2"},
		programs.Edit{File: "store/model/level.go", Text: "levels = [NumKinds]uint32{", By: "levels = [NumKinds]uint32{KindNovelty: 2"},
		programs.Edit{File: "store/model/body.go", Text: "= [NumKinds]func() proto.Message{",
			By: "= [NumKinds]func() proto.Message{KindNovelty: func() proto.Message { return &networkingv1.Gateway{} },"},
		programs.Edit{File: "push/build/cluster/outbound.go", Text: "	name := xds.OutboundCluster(s.Port, s.Subset, s.Host)",
			By: "	name := xds.OutboundCluster(s.Port, s.Subset, s.Host)\n	if s.Subset == \"poison\" {\n		panic(name)\n	}"},
		programs.Edit{File: "store/normal/gateway.go", Text: "return r.record(model.KindGateway, obj, obj.ID.Name, gateway)",
			By: "return append(r.record(model.KindGateway, obj, obj.ID.Name, gateway), r.record(model.KindNovelty, obj, obj.ID.Name, gateway)...)"})
}

// A build that knows an additional kind replaces another build, replica by replica, while one replica is cut off; then
// the old build returns. Records of the kind are stored once every replica can read them, and are deleted before a
// replica serves that cannot. Proxies receive nothing because of this.
func TestLevelOfTwoBuilds(t *testing.T) {
	parallel(t)
	etcd := kvtest.Start(t)
	dir := townFolder(t, 10)
	write(t, dir, "gateway.yaml", `apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: edge, namespace: town}
spec: {selector: {app: edge}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}
`)
	args := mtls(t, "--roles=ingest,xds", "--config-dir", dir, "--etcd-endpoints="+etcd.Endpoint(), "--leader-lease", "2s", "--replica-lease", "2s")
	newer, older := noveltyBinary(t), binary(t, "navarchd")
	s := opened(t, etcd.Endpoint())
	// at waits for a level, and for the given number of records of the kind.
	at := func(level, records int) {
		t.Helper()
		eventually(t, patience, func() error {
			now, err := asSaid(t, s)
			if err != nil {
				return err
			}
			blobs, _, err := s.Blobs(t.Context(), "level/", 0)
			if err != nil || len(blobs) != 1 {
				return fmt.Errorf("levels %+v: %w", blobs, err)
			}
			if got := fmt.Sprintf("%s %d", blobs[0].Raw, now.Kind("Novelty").Count); got != fmt.Sprintf("%010d %d", level, records) {
				return fmt.Errorf("level and records are %s, want %d and %d", got, level, records)
			}
			return nil
		})
	}
	var replicas []*daemon
	for range 3 {
		replicas = append(replicas, startProgram(t, older, nil, args...))
	}
	for _, d := range replicas {
		eventually(t, patience, whole(t, d, 10, 1))
	}
	at(1, 0)
	f := fleet(t, 12, sim.Config{}, replicas[:2]...)
	before := f.Stats()
	replace := func(i int, program string) {
		replicas[i].stop(t)
		replicas[i] = replicas[i].again(t, program, args...)
		eventually(t, patience, replicas[i].ready)
	}

	cut := replicas[2].cmd.Process
	if err := cut.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	replace(0, newer)
	replace(1, newer)
	at(2, 1) // the replica that is cut off leaves the fleet when its lease ends
	if err := cut.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	at(1, 0)
	eventually(t, patience, replicas[2].ready)
	leader := replicas[0]
	if leader.leading() != nil {
		leader = replicas[1]
	}
	leader.hasProblem(t, "town/edge", "every replica reads level 2")
	replace(2, newer)
	at(2, 1)

	for _, d := range replicas { // back, all at once: nobody who knows the kind is there to remove it
		d.kill()
	}
	for i := range replicas {
		replicas[i] = replicas[i].again(t, older, args...)
	}
	at(1, 0)
	for _, d := range replicas {
		eventually(t, patience, d.ready)
	}
	reaches(t, f, 2, func() { write(t, dir, "town.yaml", town(0, 10, 2)) })
	if sent := f.Stats().Since(before).Types["CDS"]; sent.Resources+sent.Removed > 0 {
		t.Errorf("%d clusters were sent, %d removed", sent.Resources, sent.Removed)
	}
	unharmed(t, f)
}

package plan

import (
	"runtime"
	"testing"
	"time"
	"weak"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// After an edit nothing of a plan holds the snapshot that a sidecar and a gateway were planned from.
func TestSnapshotIsReleased(t *testing.T) {
	p, gone := func() (*Planner, weak.Pointer[mirror.Snapshot]) {
		p, _, _ := gatewayPlanner(svc(t, "edge/gw", "10.96.0.2", "http:80:HTTP"), eps(t, "edge/gw-1", "{name: http, number: 8080}", "10.1.0.1"),
			rec(t, model.KindGateway, "edge/front", "{selector: {app: gw}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}"))
		was := weak.Make(p.Snapshot())
		edited(p, boundRule(t, 0, "/a"))
		return p, was
	}()
	for end := time.Now().Add(time.Minute); gone.Value() != nil; runtime.GC() {
		if time.Now().After(end) {
			t.Fatal("the planner holds a snapshot of the past")
		}
	}
	runtime.KeepAlive(p)
}

package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/shard/ring"
)

// An agent with a real Envoy is notified to move to a replica that lags on purpose (its etcd is blocked, and its lease
// is long), and does not move. Then that replica is the only reachable one: Envoy keeps its configuration until the
// replica is up to date. No request fails, and no request uses older routes than an earlier request.
func TestAgentIsNotTakenBack(t *testing.T) {
	parallel(t)
	data := t.TempDir()
	dir, at := shopFolder(t)
	backEnd(t, at)
	first := startNamed(t, "first", "--config-dir", dir, "--data-dir", data, "--replica-ramp", "0s")
	eventually(t, patience, serves(t, first, 1))
	wire := connect(t, "unix://"+filepath.Join(data, "etcd.sock"))
	second := startNamed(t, taker(t, "first", "shop", ring.Load{}), "--roles=xds,ca", wire.etcd(), "--kek", "file:"+filepath.Join(data, "kek.key"), "--replica-ramp", "0s", "--replica-lease", "10m")
	eventually(t, patience, serves(t, second, 1))
	eventually(t, patience, func() error {
		page, err := first.ring()
		if err == nil && !slices.Contains(page.owners(), second.secure) {
			err = fmt.Errorf("%s owns nothing: %+v", second.secure, page.Members)
		}
		return err
	})

	wire.set(rule{hold: true})
	write(t, dir, "marked.yaml", marked(2))
	write(t, dir, "routes.yaml", routes(2))
	eventually(t, patience, serves(t, first, 2))
	via := connect(t, first.secure)
	through := *first
	through.secure = via.address
	p := runAgent(t, &through, data, filepath.Join(data, "root-cert.pem"), "web", at+".1")
	f := flow(t, at)
	xds := func(want string, is func(p agentPage) bool) {
		t.Helper()
		eventually(t, patience, func() error {
			f.fine(t)
			page, err := p.page()
			if err == nil && !is(page) {
				err = fmt.Errorf("want %s: %+v", want, page.XDS)
			}
			return err
		})
	}
	xds("a try to move", func(p agentPage) bool { return p.XDS.Owner == second.secure && p.XDS.MovesFailed+p.XDS.Moves > 0 })
	eventually(t, patience, f.at(t, 2))

	via.redirect(second.secure)
	via.drop()
	xds("to be turned away", func(p agentPage) bool {
		return !p.XDS.Connected && strings.Contains(p.XDS.LastError, "this replica lags behind")
	})
	write(t, dir, "marked.yaml", marked(3))
	wire.set(rule{})
	eventually(t, patience, f.at(t, 3))
	xds("to be at its owner", func(p agentPage) bool {
		return p.XDS.Connected && p.XDS.AtOwner && p.XDS.Moves == 0 && p.XDS.StreamsOpened == 1
	})
	t.Logf("%d requests", f.fine(t))
}

package scene

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"navarch.io/navarch/loadtest/proxy"
)

// roots changes the root of the mesh while proxies with certificates of the servers' own CA are connected over mTLS,
// and keep connecting. The new root is pushed to all proxies, their agents report it, the signer changes, and every
// proxy gets a certificate of the new root. No connection may break or fail.
func roots(s *stage) error {
	if s.starter == nil || len(s.Etcd) > 0 || len(s.servers) > 1 {
		return errors.New("the root is changed of one server that was started here, with its own etcd")
	}
	if err := s.joined(nil); err != nil {
		return err
	}
	n := s.proxies()
	if err := s.await("all have the first root", s.hold(n)); err != nil {
		return err
	}
	before, err := s.fleet.Stats()
	if err != nil {
		return err
	}
	old, err := s.fleet.Certified()
	if err != nil {
		return err
	}
	cpu0, _ := usage(s.watched())
	began := time.Now()
	if err := s.operate("rotate"); err != nil {
		return err
	}
	// While the root changes, one proxy in ten reopens its stream with its present certificate.
	spread := s.span(10 * time.Second)
	if err := s.fleet.Reconnect(Select{Share: .1}, proxy.Reconnect{Spread: spread}); err != nil {
		return err
	}
	if err := s.await("the new root signs", s.signs); err != nil {
		return err
	}
	s.row("rotation, until the new root signs", "s", time.Since(began).Seconds())
	if err := s.await("all have the new root", s.hold(n)); err != nil {
		return err
	}
	if err := s.again(before, n/10); err != nil { // otherwise proxies that have not reopened yet would reopen once instead of twice
		return err
	}
	held, err := s.fleet.Trusting()
	if err != nil {
		return err
	}
	s.row(rowOldRoot, "", float64(n-held))
	if err := s.recertify(before, old, spread); err != nil {
		return err
	}
	return s.unbroken(before, cpu0)
}

// recertify makes every proxy get a certificate of the new root, and reopen its stream with it.
func (s *stage) recertify(before proxy.Stats, old map[string]int, spread time.Duration) error {
	began, n := time.Now(), s.proxies()
	if err := s.fleet.Renew(); err != nil {
		return err
	}
	if err := s.fleet.Reconnect(Select{}, proxy.Reconnect{Spread: spread}); err != nil {
		return err
	}
	if err := s.again(before, n+n/10); err != nil {
		return err
	}
	s.row("until all have certificates of the new root", "s", time.Since(began).Seconds())
	by, err := s.fleet.Certified()
	if err != nil {
		return err
	}
	left, all := 0, 0
	for key, n := range by {
		if all += n; old[key] > 0 {
			left += n
		}
	}
	s.row(rowOldLeaf, "", float64(left))
	s.row("identities", "", float64(all))
	return nil
}

// unbroken adds the rows about connections since `before`.
func (s *stage) unbroken(before proxy.Stats, cpu0 time.Duration) error {
	cpu, err := s.rest(cpu0)
	if err != nil {
		return err
	}
	after, err := s.fleet.Stats()
	if err != nil {
		return err
	}
	since, broken := after.Since(before), uint64(0)
	for how, n := range after.Ended {
		if more := n - before.Ended[how]; more > 0 {
			broken += more
			s.note("%d connections ended: %s, for example %q.", more, how, after.Errors[how])
		}
	}
	s.row(rowBroken, "", float64(broken))
	s.row("connections made", "", float64(since.Streams))
	s.row("pushes of roots and revocation lists", "", float64(since.Types["agent"].Responses))
	s.row("bytes of everything else, of those of a first join", "%",
		100*float64(since.Total().BytesIn-since.Types["agent"].BytesIn)/float64(max(1, before.Total().BytesIn)))
	s.cost("server CPU per proxy", "ms", ms(cpu-cpu0)/float64(s.proxies()))
	return s.equal()
}

// hold returns a check that succeeds once n proxies hold the newest roots.
func (s *stage) hold(n int) func() error {
	return func() error {
		held, err := s.fleet.Trusting()
		if err == nil && held < n {
			err = fmt.Errorf("%d of %d proxies have the newest roots", held, n)
		}
		return err
	}
}

// operate runs navarchctl ca, from navarchd's folder.
func (s *stage) operate(args ...string) error {
	out, err := exec.CommandContext(s.ctx, filepath.Join(filepath.Dir(s.Navarchd), "navarchctl"),
		append(append([]string{"ca"}, args...), "--data-dir", filepath.Join(s.starter.dir, "data"), "--mesh", s.starter.mesh)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("navarchctl ca %v, beside navarchd: %w: %s", args, err, out)
	}
	return nil
}

// epochsMetric counts the servers' signing epochs by status; an old root in use is retiring.
const epochsMetric = "navarch_keyring_epochs"

// signs returns an error until the new root signs.
func (s *stage) signs() error {
	if _, err := s.fleet.Trusting(); err != nil {
		return err
	}
	page, err := s.servers[0].metrics(s.ctx)
	if err != nil {
		return err
	}
	if status := page.By(epochsMetric, "status"); status["retiring"] < 1 {
		return fmt.Errorf("the epochs are %v", status)
	}
	return nil
}

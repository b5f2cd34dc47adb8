package scene

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"navarch.io/navarch/loadtest/attack"
)

// The paces of the scenario.
const (
	tenantEvery = time.Second / 12       // between two changes of the tenant
	joinEvery   = 500 * time.Millisecond // between two proxies that join
	tenantMost  = "966367641"            // GOMEMLIMIT: 90 % of 1 GiB, as the chart sets it
)

// tenant carries out the attacks of somebody who may write the objects of one namespace, one after the other, while endpoints of other namespaces
// change and proxies of these join. Then the objects are deleted.
func tenant(s *stage) error {
	var chosen []attack.Tenant
	for _, a := range attack.Tenants() {
		if len(s.Attacks) == 0 || slices.Contains(s.Attacks, a.Name) {
			chosen = append(chosen, a)
		}
	}
	joiners := len(chosen) * int(s.lasts()/joinEvery)
	if err := s.fleetOf(nil); err != nil {
		return err
	}
	next := max(1, s.proxies()-joiners)
	if err := errors.Join(s.join(0, next), s.quiet()); err != nil {
		return err
	}
	noisy, services := s.sides()
	services = append(services, noisy...)
	each := len(services) / max(1, len(chosen))
	for i, a := range chosen {
		if err := s.tenantAttack(a, services[i*each:(i+1)*each], &next); err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
	}
	return s.equal()
}

// tenantAttack carries out one attack, with proxies from next on that join meanwhile.
func (s *stage) tenantAttack(a attack.Tenant, services []int, next *int) error {
	s.enter("attack: " + a.Name)
	before, err := s.fleet.Stats()
	if err != nil {
		return err
	}
	dir := filepath.Join(s.dir, "tenant")
	if err := errors.Join(makeDir(dir), writeAll(dir, a.Files())); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	var wg sync.WaitGroup
	var peak uint64
	var changed, joined error
	var slowest time.Duration
	wg.Go(func() { peak = s.peak(ctx) })
	if a.Change != nil {
		wg.Go(func() { changed = tenantChanges(ctx, dir, a.Change) })
	}
	wg.Go(func() { slowest, joined = s.joinSlowly(ctx, next) })
	edits, err := s.editAll(services, s.lasts())
	stop()
	wg.Wait()
	alive := errors.Join(s.servers[0].alive(), err, changed, joined)
	s.enter("deleting what " + a.Name + " wrote")
	gone := time.Now()
	if err := errors.Join(alive, os.RemoveAll(dir)); err != nil {
		return err
	}
	if err := s.quiet(); err != nil {
		return err
	}
	back := time.Since(gone)
	after, err := s.fleet.Stats()
	if err != nil {
		return err
	}
	var lost uint64
	for how, n := range after.Ended {
		lost += n - before.Ended[how]
	}
	s.row(rowTenantP99+a.Name, "ms", ms(edits.acks.Quantile(.99)))
	s.row(rowTenantJoin+a.Name, "ms", ms(slowest))
	s.row(rowTenantLost+a.Name, "", float64(lost))
	s.row(rowTenantMissing+a.Name, "", float64(edits.missing))
	s.row(rowTenantBack+a.Name, "s", back.Seconds())
	s.cost(rowTenantRSS+a.Name, "MB", mb(peak))
	s.latency("commit to ACK: "+a.Name, &edits.acks)
	return nil
}

// Rows of the scenario, before the name of the attack.
const (
	rowTenantP99     = "commit to ACK, p99: "
	rowTenantJoin    = "slowest join: "
	rowTenantLost    = "good proxies disconnected: "
	rowTenantMissing = "ACKs that did not come: "
	rowTenantBack    = "quiet after the deletion: "
	rowTenantRSS     = "most RSS: "
)

// tenantTargets are the same for each attack.
func tenantTargets() map[string]Target {
	all := map[string]Target{}
	for _, a := range attack.Tenants() {
		all[rowTenantP99+a.Name], all[rowTenantJoin+a.Name] = Target{Value: 200}, Target{Value: 2000}
		all[rowTenantLost+a.Name], all[rowTenantMissing+a.Name] = Target{Value: 0}, Target{Value: 0}
		all[rowTenantBack+a.Name], all[rowTenantRSS+a.Name] = Target{Value: 10}, Target{Value: 1073}
	}
	return all
}

// joinSlowly lets one proxy after the other join, and returns how long the slowest took.
func (s *stage) joinSlowly(ctx context.Context, next *int) (slowest time.Duration, err error) {
	tick := time.NewTicker(joinEvery)
	defer tick.Stop()
	for *next < s.proxies() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return slowest, nil
		}
		began := time.Now()
		if err := s.join(*next, *next+1); err != nil {
			return slowest, err
		}
		*next++
		slowest = max(slowest, time.Since(began))
	}
	return slowest, nil
}

// tenantChanges changes the tenant's files until the context ends.
func tenantChanges(ctx context.Context, dir string, change func(int) (string, string)) error {
	tick := time.NewTicker(tenantEvery)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		name, text := change(i)
		if err := writeAll(dir, map[string]string{name: text}); err != nil {
			return err
		}
	}
}

// writeAll writes files, each at once.
func writeAll(dir string, files map[string]string) error {
	for name, text := range files {
		beside := filepath.Join(dir, "."+name)
		if err := errors.Join(os.WriteFile(beside, []byte(text), 0o600), os.Rename(beside, filepath.Join(dir, name))); err != nil {
			return err
		}
	}
	return nil
}

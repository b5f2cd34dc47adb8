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

// piecesMetric has the lengths of the pieces of work of the plan's loop.
const piecesMetric = "navarch_plan_piece_seconds"

// The paces of the scenario.
const (
	tenantEvery = time.Second / 12       // between two changes of the tenant
	joinEvery   = time.Second            // between two proxies that join
	tenantPace  = 400 * time.Millisecond // between two edits of endpoints: 50 in 20 s, of 55 services for each attack
	tenantMost  = "966367641"            // GOMEMLIMIT: 90 % of 1 GiB, as the chart sets it
)

// tenant carries out the attacks of a user who may write the objects of one namespace, one after the other. Meanwhile
// endpoints of other namespaces change, and proxies of these namespaces join. Then the objects are deleted.
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
	// The routes of all proxies are others from now on than those that the world began with. Where a tenant's hosts leave
	// them, they would become again what they were, which counts as a version that goes back.
	if err := s.apply(s.churn.VirtualServices(s.seen()), &effects{}); err != nil {
		return err
	}
	for i, a := range chosen {
		if err := s.tenantAttack(a, services[i*each:(i+1)*each], &next); err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
	}
	// An attack that ends between two ticks leaves proxies that have not joined yet.
	if err := errors.Join(s.join(next, s.proxies()), s.quiet()); err != nil {
		return err
	}
	return s.equal()
}

// tenantAttack carries out one attack, while proxies from index next on join.
func (s *stage) tenantAttack(a attack.Tenant, services []int, next *int) error {
	s.enter("attack: " + a.Name)
	before, err := s.fleet.Stats()
	if err != nil {
		return err
	}
	records, err := s.servers[0].snapshot(s.ctx)
	if err != nil {
		return err
	}
	pieces, err := s.servers[0].metrics(s.ctx)
	if err != nil {
		return err
	}
	side, err := s.asTenant(a)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	var wg sync.WaitGroup
	var peak uint64
	var joined error
	var slowest time.Duration
	wg.Go(func() { peak = s.peak(ctx) })
	wg.Go(func() { slowest, joined = s.joinSlowly(ctx, next) })
	edits, err := s.editAll(services, s.lasts())
	stop()
	wg.Wait()
	if err := errors.Join(s.servers[0].alive(), err, side.end(), joined); err != nil {
		return err
	}
	stay, back, err := s.withoutTenant(side, records)
	if err != nil {
		return fmt.Errorf("after it was deleted: %w", err)
	}
	after, err := s.fleet.Stats()
	if err != nil {
		return err
	}
	done, err := s.servers[0].metrics(s.ctx)
	if err != nil {
		return err
	}
	var lost uint64
	for how, n := range after.Ended {
		lost += n - before.Ended[how]
	}
	s.row(rowTenantP99+a.Name, "ms", ms(edits.p99()))
	s.row(rowTenantJoin+a.Name, "ms", ms(slowest))
	s.row(rowTenantPiece+a.Name, "ms", 1000*done.Buckets(piecesMetric).Since(pieces.Buckets(piecesMetric)).Longest())
	s.row(rowTenantLost+a.Name, "", float64(lost))
	s.row(rowTenantMissing+a.Name, "", float64(edits.missing))
	s.row(rowTenantBack+a.Name, "s", back.Seconds())
	s.row(rowTenantStays+a.Name, "", float64(stay))
	s.cost(rowTenantRSS+a.Name, "MB", mb(peak))
	s.latency("commit to ACK: "+a.Name, &edits.acks)
	return nil
}

// withoutTenant deletes what the tenant wrote. It returns the number of records that stay, and the time until the
// server has no more records than before and the proxies are quiet.
func (s *stage) withoutTenant(side *tenantSide, before map[string]int) (stay int, back time.Duration, err error) {
	gone := time.Now()
	if err := side.remove(); err != nil {
		return 0, 0, err
	}
	if stay, err = s.gone(before); err != nil {
		return 0, 0, err
	}
	err = s.quiet()
	return stay, time.Since(gone), err
}

// Rows of the scenario, before the name of the attack.
const (
	rowTenantP99     = "commit to ACK, p99: "
	rowTenantJoin    = "slowest join: "
	rowTenantPiece   = "longest piece of the plan, at most: "
	rowTenantStays   = "records too many or too few after the deletion: "
	rowTenantLost    = "good proxies disconnected: "
	rowTenantMissing = "ACKs that did not come: "
	rowTenantBack    = "quiet after the deletion: "
	rowTenantRSS     = "most RSS: "
)

// tenantTargets returns the targets of each attack.
func tenantTargets() map[string]Target {
	all := map[string]Target{}
	for _, a := range attack.Tenants() {
		all[rowTenantP99+a.Name], all[rowTenantJoin+a.Name] = Target{Value: 200}, Target{Value: 2000}
		all[rowTenantPiece+a.Name], all[rowTenantStays+a.Name] = Target{Value: 100}, Target{Value: 0}
		all[rowTenantLost+a.Name], all[rowTenantMissing+a.Name] = Target{Value: 0}, Target{Value: 0}
		all[rowTenantBack+a.Name], all[rowTenantRSS+a.Name] = Target{Value: 10}, Target{Value: 1073}
	}
	return all
}

// joinSlowly lets one proxy after the other join, and returns the longest duration of a join.
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
		if err := writeFile(dir, name, text); err != nil {
			return err
		}
	}
}

// writeFile writes a file at once.
func writeFile(dir, name, text string) error {
	beside := filepath.Join(dir, "."+name)
	return errors.Join(os.WriteFile(beside, []byte(text), 0o600), os.Rename(beside, filepath.Join(dir, name)))
}

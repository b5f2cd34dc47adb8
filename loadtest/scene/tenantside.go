package scene

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"navarch.io/navarch/loadtest/attack"
	"navarch.io/navarch/loadtest/proxy"
)

const (
	tenantJoins  = 2 * time.Second       // from the tenant's first file to its Pods: they join when their patches are read
	tenantWrites = 200                   // files a second: objects come one by one, as by an API server
	tenantStep   = 50 * time.Millisecond // between two lots of them
)

// tenantSide is an attack of a tenant under way: its files, changes of these, and proxies of its Pods. With the files
// there is a policy of another namespace, which is deleted in the same moment.
type tenantSide struct {
	dir, victim string
	pods        *local // proxies of the tenant's namespace; their figures do not count
	cancel      context.CancelFunc
	work        sync.WaitGroup
	written     error
	joined      error
}

// asTenant writes the files of an attack, one after the other, then changes, and goes on until end is called.
func (s *stage) asTenant(a attack.Tenant) (*tenantSide, error) {
	t := &tenantSide{dir: filepath.Join(s.dir, "tenant"), victim: filepath.Join(s.dir, "victim.yaml")}
	victim := attack.Policy(s.mesh.Namespaces()[0], "victim")
	if err := errors.Join(makeDir(t.dir), os.WriteFile(t.victim, []byte(victim), 0o600)); err != nil {
		return nil, err
	}
	if a.Pods > 0 {
		var err error
		if t.pods, err = newLocal(Spec{Addrs: []string{s.servers[0].Addr}, TLS: s.TLS}); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(s.ctx)
	t.cancel = cancel
	t.work.Go(func() { t.written = t.write(ctx, a) })
	if a.Pods > 0 {
		t.work.Go(func() { t.joined = t.join(ctx, a.Pods) })
	}
	return t, nil
}

// write writes the files of an attack in the order of their names, and then changes them until the context ends.
func (t *tenantSide) write(ctx context.Context, a attack.Tenant) error {
	files := a.Files()
	tick := time.NewTicker(tenantStep)
	defer tick.Stop()
	for lot := range slices.Chunk(slices.Sorted(maps.Keys(files)), int(tenantWrites*tenantStep/time.Second)) {
		for _, name := range lot {
			if err := writeFile(t.dir, name, files[name]); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
	if a.Change == nil {
		return nil
	}
	return tenantChanges(ctx, t.dir, a.Change)
}

// join adds the proxies of the tenant's Pods. Each has a service account of its own, and so a view of its own.
func (t *tenantSide) join(ctx context.Context, pods int) error {
	timer := time.NewTimer(tenantJoins)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil
	}
	var all []proxy.Identity
	for i := range pods {
		name := fmt.Sprintf("pod%d", i)
		all = append(all, proxy.Identity{Namespace: attack.TenantNamespace, Name: name, Workload: name, ServiceAccount: name,
			IP: fmt.Sprintf("10.203.0.%d", i+1), Labels: map[string]string{"app": name}})
	}
	return t.pods.Add(all)
}

// end stops the changes, and ends the tenant's proxies. The files stay.
func (t *tenantSide) end() error {
	t.cancel()
	t.work.Wait()
	if t.pods != nil {
		t.joined = errors.Join(t.joined, t.pods.Close())
	}
	return errors.Join(t.written, t.joined)
}

// remove deletes the tenant's files, and in the same moment the policy of the other namespace.
func (t *tenantSide) remove() error { return errors.Join(os.RemoveAll(t.dir), os.Remove(t.victim)) }

// gone waits until the server has as many records of each kind as before the attack, quietLimit at most. It returns the
// number of records that stay. A folder is less reliable than an API server, so the tenant accepts the removals of its
// own namespace.
func (s *stage) gone(before map[string]int) (stay int, err error) {
	s.enter("waiting until the tenant's records are gone")
	tick := time.NewTicker(quietStep)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < quietLimit; {
		now, err := s.servers[0].snapshot(s.ctx)
		if err != nil {
			return 0, err
		}
		stay = 0
		for kind, n := range now {
			stay += max(n-before[kind], before[kind]-n)
		}
		if stay == 0 {
			return 0, nil
		}
		if err := s.acceptRemovals(attack.TenantNamespace); err != nil {
			return stay, err
		}
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return stay, s.ctx.Err()
		}
	}
	return stay, nil
}

// acceptRemovals accepts the removals of a namespace that the server holds.
func (s *stage) acceptRemovals(namespace string) error {
	const removalsPage = "/debug/removals"
	var page struct {
		Held []struct{ ID, Namespace string } `json:"held"`
	}
	if err := s.servers[0].page(s.ctx, removalsPage, &page); err != nil {
		return err
	}
	for _, h := range page.Held {
		if h.Namespace != namespace {
			continue
		}
		ctx, cancel := context.WithTimeout(s.ctx, patience)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.servers[0].Debug+removalsPage+"?accept="+url.QueryEscape(h.ID), nil)
		if err == nil {
			var answer *http.Response
			if answer, err = http.DefaultClient.Do(req); err == nil { // one that has ended meanwhile is not found
				err = answer.Body.Close()
			}
		}
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

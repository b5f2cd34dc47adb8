package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	rotateLimit = 40 * time.Second // every agent reports that it has the root, and then renews at half of leafTTL
	renewLimit  = 2 * leafTTL
)

// operate runs navarchctl ca on the demo's etcd, with its key encryption key.
func (m *mesh) operate(ctx context.Context, args ...string) (string, error) {
	return m.ctl(ctx, append(append([]string{"ca"}, args...), "--data-dir", m.data())...)
}

// rotate begins the rotation of the mesh's root during traffic to path, and waits until every workload has a
// certificate of the next epoch. No handshake may fail meanwhile.
func (m *mesh) rotate(ctx context.Context, path string) (string, error) {
	was, err := m.leaf(ctx, m.front)
	if err != nil {
		return "", err
	}
	refused, err := m.count(ctx, refusedCertificates)
	if err != nil {
		return "", err
	}
	measured, err := m.under(ctx, path, func() (string, error) {
		if _, err := m.operate(ctx, "rotate"); err != nil {
			return "", err
		}
		began := time.Now()
		two, err := m.turned(ctx, was.epoch)
		if err == nil && two == 0 {
			err = errors.New("no Envoy was seen to trust both roots while its leaf was by the old one")
		}
		return fmt.Sprintf("from epoch %s to the next at all %d Envoys within %.1f s; %d were seen to trust both roots before", was.epoch,
			len(m.services.workloads), time.Since(began).Seconds(), two), err
	})
	if err != nil {
		return measured, err
	}
	after, err := m.count(ctx, refusedCertificates)
	if err == nil && after != refused {
		err = fmt.Errorf("Envoys refused %d certificates", after-refused)
	}
	return measured, err
}

// turned waits until no leaf is of the epoch. It returns the number of Envoys that trusted two roots before.
func (m *mesh) turned(ctx context.Context, epoch string) (two int, err error) {
	both, done := map[string]bool{}, map[string]bool{}
	err = m.children.await(ctx, "leaves of the next epoch", rotateLimit, func(ctx context.Context) error {
		for _, w := range m.services.workloads {
			if done[w.pod] {
				continue
			}
			all, err := m.inUse(ctx, w)
			if err != nil {
				return err
			}
			roots, old := 0, false
			for _, c := range all {
				if c.kind == "root" {
					roots++
				}
				old = old || c.kind == "leaf" && c.epoch == epoch
			}
			both[w.pod] = both[w.pod] || old && roots == 2
			done[w.pod] = !old
		}
		if left := len(m.services.workloads) - count(done); left > 0 {
			return fmt.Errorf("%d of %d are by epoch %s yet", left, len(m.services.workloads), epoch)
		}
		return nil
	})
	return count(both), err
}

func count(all map[string]bool) (n int) {
	for _, is := range all {
		if is {
			n++
		}
	}
	return n
}

// Envoy's counters of refused certificates and denied requests.
const (
	refusedCertificates = `\.ssl\.fail_verify_(error|san|cert_hash)$`
	deniedRequests      = `\.rbac\.denied$`
)

// count returns the sum of a counter over all Envoys.
func (m *mesh) count(ctx context.Context, counter string) (sum int, err error) {
	for _, w := range m.services.workloads {
		n, err := m.stat(ctx, w, counter)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// revoke revokes the identity of reviews while web calls the same backend, and restores it.
func (m *mesh) revoke(ctx context.Context) (string, error) {
	w := m.services.of("reviews", "v1")[0]
	id := fmt.Sprintf("spiffe://cluster.local/ns/%s/sa/%s", w.namespace, w.account)
	caller := newCaller("http://"+m.places[w.pod].app, "reviews."+w.namespace, nil)
	defer caller.client.CloseIdleConnections()
	if r := caller.call(ctx, "ratings/"); r.err != nil || r.status != http.StatusOK {
		return "", fmt.Errorf("before: status %d from ratings, %w", r.status, errors.Join(r.err))
	}
	restored := false
	defer func() {
		if !restored { // later steps must not be affected
			m.operate(context.WithoutCancel(ctx), "restore", "--identity", id)
		}
	}()
	return m.underOf(ctx, "ratings/", []workload{m.front}, func() (string, error) {
		turnedAway, err := m.count(ctx, deniedRequests)
		if err != nil {
			return "", err
		}
		began := time.Now()
		if _, err := m.operate(ctx, "revoke", "--identity", id); err != nil {
			return "", err
		}
		if err := m.children.await(ctx, "refusal of reviews", liveLimit, refused(caller)); err != nil {
			return "", err
		}
		took := time.Since(began)
		for range 20 { // the refusal is stable
			if err := refused(caller)(ctx); err != nil {
				return "", err
			}
		}
		if n, err := m.count(ctx, deniedRequests); err != nil || n == turnedAway {
			return "", fmt.Errorf("no Envoy denied a request: %w", errors.Join(err))
		}
		listed, err := m.operate(ctx, "status")
		if err == nil && !slices.Contains(strings.Fields(listed), id) {
			err = fmt.Errorf("status does not name it:\n%s", listed)
		}
		if err != nil {
			return "", err
		}
		if _, err := m.operate(ctx, "restore", "--identity", id); err != nil {
			return "", err
		}
		restored = true
		given := time.Now()
		err = m.children.await(ctx, "reviews' calls, restored", renewLimit, func(ctx context.Context) error {
			if r := caller.call(ctx, "ratings/"); r.err != nil || r.status != http.StatusOK {
				return fmt.Errorf("status %d, %w", r.status, errors.Join(r.err))
			}
			return nil
		})
		return fmt.Sprintf("refused after %d ms; restored, its next certificate is good after %.1f s; web's meanwhile",
			took.Milliseconds(), time.Since(given).Seconds()), err
	})
}

// refused returns a check that ratings' proxy denies the caller's requests.
func refused(c *caller) func(context.Context) error {
	return func(ctx context.Context) error {
		if r := c.call(ctx, "ratings/"); r.err != nil || r.status != http.StatusForbidden {
			return fmt.Errorf("status %d for reviews, %w", r.status, errors.Join(r.err))
		}
		return nil
	}
}

package remote

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/problem"
)

// check is other credentials of a cluster that is read. They count once the API server has let everything be listed with them: until then the cluster
// is read with those before, so that credentials that are wrong make nothing out of date.
type check struct {
	candidate
	source source
	stop   func()
	// With the lock of Clusters:
	passed bool
	wrong  string // why they do not count; empty: nothing was answered yet
}

// backoff is how a check that fails is repeated.
var backoff = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 6, Cap: 30 * time.Second}

// try has credentials tried until they pass, or the check is ended.
func (k *Clusters) try(ctx context.Context, w candidate, s source) {
	ctx, cancel := context.WithCancel(ctx)
	t := &check{candidate: w, source: s, stop: cancel}
	k.mu.Lock()
	k.checks[w.cluster] = t
	k.mu.Unlock()
	k.trying.Go(func() {
		defer cancel()
		for pauses := backoff; ctx.Err() == nil; {
			err := s.Check(ctx)
			if ctx.Err() != nil || k.tried(t, err) {
				return
			}
			k.logged.Warn("other credentials of a cluster are not used yet; it is read with those before", w.cluster, keyCluster, w.cluster, "secret", w.secret, obs.KeyError, err)
			_ = loop.Pause(ctx, pauses.Step())
		}
	})
}

// tried takes down what came of a check, and says whether it passed.
func (k *Clusters) tried(t *check, err error) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		t.wrong = problem.Cause(err)
		return false
	}
	t.passed = true
	k.wake()
	return true
}

// endChecks ends those whose credentials are not those that Secrets have now.
func (k *Clusters) endChecks(wanted []candidate) {
	now := map[string][sha256.Size]byte{}
	for _, w := range wanted {
		now[w.cluster] = w.digest
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, t := range k.checks {
		if digest, is := now[name]; !is || digest != t.digest || k.running[name] == nil || k.running[name].digest == digest {
			t.stop()
			delete(k.checks, name)
		}
	}
}

// passes says whether these credentials are tried already, and takes the source whose credentials passed; nil: they have not.
func (k *Clusters) passes(w candidate) (s source, tried bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.checks[w.cluster]
	if t == nil || t.digest != w.digest {
		return nil, false
	}
	if !t.passed {
		return nil, true
	}
	delete(k.checks, w.cluster)
	return t.source, true
}

// untried is a problem for each check that has failed. With the lock.
func (k *Clusters) untried() (all []object.Problem) {
	for name, t := range k.checks {
		if t.wrong != "" {
			all = append(all, t.problem(k.Namespace, problem.Unreadable, fmt.Sprintf("the other credentials of cluster %s are not used yet: %s; it is read with those before", name, t.wrong)))
		}
	}
	return all
}

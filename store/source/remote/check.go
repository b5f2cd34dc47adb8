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

// check tests changed credentials of a cluster that is being read. The changed credentials replace the previous ones
// once they permit a list of every needed kind (kube.Source.Check). Until then the cluster is read with the previous
// credentials, so that wrong credentials do not interrupt the reading.
type check struct {
	candidate
	source source
	stop   func()
	// Guarded by Clusters.mu:
	passed bool
	wrong  string // reason of the last failed attempt; empty: no attempt has failed yet
}

// backoff is the schedule of pauses between failed attempts of a check.
var backoff = wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 6, Cap: 30 * time.Second}

// startCheck starts a goroutine that repeats the check of w's credentials. The goroutine ends when the credentials
// pass, when ctx ends, or when the check is stopped.
func (k *Clusters) startCheck(ctx context.Context, w candidate, s source) {
	ctx, cancel := context.WithCancel(ctx)
	t := &check{candidate: w, source: s, stop: cancel}
	k.mu.Lock()
	k.checks[w.cluster] = t
	k.mu.Unlock()
	k.trying.Go(func() {
		defer cancel()
		for pauses := backoff; ctx.Err() == nil; {
			err := s.Check(ctx)
			if ctx.Err() != nil || k.recordAttempt(t, err) {
				return
			}
			k.logged.Warn("new credentials of a cluster are not used yet; the cluster is read with the previous credentials", w.cluster,
				keyCluster, w.cluster, "secret", w.secret, obs.KeyError, err)
			_ = loop.Pause(ctx, pauses.Step())
		}
	})
}

// recordAttempt stores the result of one attempt of a check, and reports whether the credentials passed.
func (k *Clusters) recordAttempt(t *check, err error) bool {
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

// endChecks stops the checks that are not needed any more. A check is needed while a Secret contains its credentials,
// and the cluster is read with other credentials.
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

// passedCheck returns the source with w's credentials if the credentials have passed their check, and removes the
// check. The result known reports whether a check of exactly these credentials exists. If known is true, a nil source
// means that the check has not passed yet.
func (k *Clusters) passedCheck(w candidate) (s source, known bool) {
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

// failedChecks returns one problem for each check whose last attempt failed. The caller has locked Clusters.mu.
func (k *Clusters) failedChecks() (all []object.Problem) {
	for name, t := range k.checks {
		if t.wrong != "" {
			all = append(all, t.problem(k.Namespace, problem.Unreadable,
				fmt.Sprintf("the new credentials of cluster %s are not used yet: %s; the cluster is read with the previous credentials",
					name, t.wrong)))
		}
	}
	return all
}

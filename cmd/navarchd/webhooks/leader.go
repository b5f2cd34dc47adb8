package webhooks

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/store/admit/configure"
	"navarch.io/navarch/store/admit/validate"
	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/status"
)

// Leader updates the mesh's webhook configurations while this process leads. It writes the mesh's roots into all these
// configurations. It also writes failurePolicy Fail into a validation configuration, once the configuration's webhook
// has refused an invalid object in a dry run. While no roots are known, Leader writes nothing. Safe for concurrent use,
// but calls of Lead must not overlap.
type Leader struct {
	*Configurations
	api     *apiserver.Client
	origin  origin.Origin
	writers map[status.WebhookKind]*status.Writer[unstructured.Unstructured]

	mu     sync.Mutex           // a leaf lock; guards the fields below
	passed map[status.Key]bool  // configurations whose webhook refused its dry run in this term
	open   map[status.Key]error // why the dry run of a configuration was not refused
}

// NewLeader returns a Leader that updates the configurations in c, and uses api for dry runs. NewLeader sends no
// request. The parameter from is the origin of the reported problems. The function until returns the time until which
// this process certainly leads. All writes to Kubernetes share the parameter limit.
func NewLeader(c *Configurations, api *apiserver.Client, from origin.Origin,
	until func(context.Context) (time.Time, error), limit *rate.Limiter) *Leader {
	l := &Leader{Configurations: c, api: api, origin: from, writers: map[status.WebhookKind]*status.Writer[unstructured.Unstructured]{}}
	for _, k := range kinds {
		l.writers[k] = status.New(status.Config[unstructured.Unstructured]{API: c.apis[k],
			Kind: string(k), Until: until, Limit: limit, Log: c.Log})
	}
	return l
}

// tryAgain is the pause between two rounds of writes and dry runs.
const tryAgain = 2 * time.Second

// Lead writes the configurations during one term of this process, until ctx ends. epoch is the number of the term.
// Failed writes and dry runs are repeated, and listed by Problems.
func (l *Leader) Lead(ctx context.Context, epoch int64) {
	l.mu.Lock()
	l.passed, l.open = map[status.Key]bool{}, map[status.Key]error{}
	l.mu.Unlock()
	defer func() { // after the term, another process reports the dry runs
		l.mu.Lock()
		defer l.mu.Unlock()
		clear(l.open)
	}()
	var parts sync.WaitGroup
	defer parts.Wait()
	for _, w := range l.writers {
		defer w.Want(nil)
		parts.Go(func() { _ = w.Run(ctx, epoch) }) // its error is the context's
	}
	tick := time.NewTicker(tryAgain) // roots change without a change of configurations
	defer tick.Stop()
	for ctx.Err() == nil {
		_, _, changed := l.managed(status.Validating)
		l.want()
		if l.dryRuns(ctx) {
			continue
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// want sets the target state of the configurations. Without roots, no configuration has a target state.
func (l *Leader) want() {
	for _, k := range kinds {
		mesh, all, _ := l.managed(k)
		want := map[status.Key]status.Desired[unstructured.Unstructured]{}
		if len(mesh.Roots) > 0 {
			roots := issue.EncodeCertificates(mesh.Roots...)
			for key := range all {
				l.mu.Lock()
				fail := k == status.Validating && l.passed[key]
				l.mu.Unlock()
				want[key] = mesh.Wanted(roots, fail)
			}
		}
		l.writers[k].Want(want)
	}
}

// dryRuns makes a dry run for each validation configuration that has the mesh's roots and failurePolicy Ignore. Every
// validation webhook of Navarch refuses the object of a dry run. dryRuns reports whether a webhook has refused its dry
// run for the first time in this term.
func (l *Leader) dryRuns(ctx context.Context) (another bool) {
	mesh, all, _ := l.managed(status.Validating)
	if len(mesh.Roots) == 0 {
		return false
	}
	l.mu.Lock()
	maps.DeleteFunc(l.open, func(key status.Key, _ error) bool { return all[key] == nil })
	l.mu.Unlock()
	for key, u := range all {
		l.mu.Lock()
		done := l.passed[key] || !configure.FailsOpen(u)
		l.mu.Unlock()
		if done || !mesh.Has(u, base64.StdEncoding.EncodeToString(issue.EncodeCertificates(mesh.Roots...))) {
			continue
		}
		err := l.dryRun(ctx, u)
		l.mu.Lock()
		if delete(l.open, key); err != nil {
			l.open[key] = err
		}
		l.passed[key] = err == nil
		l.mu.Unlock()
		if err == nil {
			l.Log.Info("a validation webhook has refused a dry run: its failurePolicy becomes Fail", obs.KeyName, key.Name)
			another = true
		}
	}
	return another
}

// dryRun returns nil if the API server called a webhook of the configuration, and the webhook refused.
func (l *Leader) dryRun(ctx context.Context, u *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	err := l.api.Do(ctx, http.MethodPost, "/apis/networking.istio.io/v1beta1/namespaces/"+
		l.Namespace+"/gateways?dryRun=All", validate.RefusedGateway(l.Namespace, configure.Selected(u)), nil)
	var no *apiserver.Status
	switch {
	case err == nil:
		return errors.New("the API server takes what the webhook must refuse")
	case !errors.As(err, &no):
		return err
	}
	for _, name := range configure.Names(u) {
		if strings.Contains(no.Message, fmt.Sprintf("admission webhook %q denied the request", name)) {
			return nil
		}
	}
	return err
}

// Problems returns the problems of this process's present term. It returns an error for each failed write. It returns a
// warning for each validation configuration whose webhook did not refuse its last dry run, because the configuration
// keeps failurePolicy Ignore. The warnings end with the term. Their order varies.
func (l *Leader) Problems() (all []object.Problem) {
	say := func(k status.WebhookKind, key status.Key, severity problem.Severity, message string) {
		all = append(all, object.Problem{ID: object.ID{Origin: l.origin, Group: "admissionregistration.k8s.io", Kind: string(k), Name: key.Name},
			Location: "Kubernetes",
			Code:     problem.Pending, Severity: severity, Message: message})
	}
	for _, k := range kinds {
		for _, p := range l.writers[k].Problems() {
			say(k, p.Key, problem.Error, p.Message)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, err := range l.open {
		say(status.Validating, key, problem.Warning,
			"objects that are not valid pass while the webhook does not answer (failurePolicy Ignore): its dry run was not refused: "+err.Error())
	}
	return all
}

func cmpName(a, b status.Key) int { return cmp.Compare(a.Name, b.Name) }

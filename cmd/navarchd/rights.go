package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"navarch.io/navarch/store/admit/inject"
	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/status"
)

// right is one right to write objects to the API server.
type right struct{ verb, group, resource, subresource, name string }

func (r right) String() string {
	return strings.TrimSpace(r.verb + " " + strings.TrimSuffix(r.resource+"/"+r.subresource, "/") + " " + r.name)
}

// mustWrite lists one right for each kind of object that a leader with this configuration writes to Kubernetes.
func mustWrite(c ingesterConfig) (all []right) {
	if c.config.writeRootCerts && !c.config.env.foreign() && c.ring != nil {
		all = append(all, right{"update", "", "configmaps", "", status.RootCertName})
	}
	if c.hooks != nil && c.config.writeWebhooks {
		injector := inject.Webhooks{Namespace: c.config.env.podNamespace, Revision: c.config.env.revision}.Name()
		all = append(all, right{"update", "admissionregistration.k8s.io", "validatingwebhookconfigurations", "", "istiod-default-validator"},
			right{"update", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", injector})
	}
	if c.config.env.status {
		all = append(all, right{"update", "networking.istio.io", "virtualservices", "status", ""})
	}
	if c.config.env.autoAllocate {
		all = append(all, right{"update", "networking.istio.io", "serviceentries", "status", ""})
	}
	return all
}

// writeRights is a leader's look at its own rights. One that may write nothing of what it must ends its term, if another candidate waits: a Deployment that an
// installation has left behind, whose service account has no rights any more, would lead for as long as it runs.
type writeRights struct {
	api     *apiserver.Client
	must    []right                             // not empty
	waiting func(context.Context) (bool, error) // another candidate waits for the end of this term
	origin  origin.Origin
	log     *slog.Logger
	every   time.Duration // how often the API server is asked
	after   time.Duration // for how long everything has to be refused

	refused atomic.Pointer[string] // why everything is refused; nil: it is not
	gaveUp  int                    // terms in a row that ended so; only one term at a time uses it
}

const (
	rightsEvery  = 5 * time.Second
	rightsAfter  = 10 * time.Second
	rightsAtMost = time.Hour
)

// errUnfit is why a leader ends its term.
var errUnfit = errors.New("the API server refuses everything that a leader must write")

// fit is one term. It returns an errUnfit, or the context's error. Each time that the next leaders do no better, this process waits twice as long before it gives up
// again: where nobody has the rights, leadership does not go round.
func (w *writeRights) fit(ctx context.Context) error {
	defer w.refused.Store(nil)
	var since time.Time // everything is refused since then; zero: it is not
	for loop.Pause(ctx, w.every) == nil {
		why, known := w.ask(ctx)
		switch {
		case !known:
			continue
		case why == "":
			since, w.gaveUp = time.Time{}, 0
			w.refused.Store(nil)
			continue
		case since.IsZero():
			since = time.Now()
		}
		if w.refused.Swap(&why) == nil {
			w.log.Warn("the API server refuses everything that a leader must write: another process is to lead, if there is one", obs.KeyReason, why)
		}
		if time.Since(since) < min(w.after<<min(w.gaveUp, 16), rightsAtMost) {
			continue
		}
		if another, err := w.waiting(ctx); err == nil && another {
			w.gaveUp++
			return fmt.Errorf("%w: %s", errUnfit, why)
		}
	}
	return ctx.Err()
}

// ask asks the API server for the rights of this process. why is empty where it may write something; known is false where the API server does not say.
func (w *writeRights) ask(ctx context.Context) (why string, known bool) {
	ctx, cancel := context.WithTimeout(ctx, rightsEvery)
	defer cancel()
	var refused []string
	for _, r := range w.must {
		review := authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: r.verb, Group: r.group, Resource: r.resource, Subresource: r.subresource, Name: r.name}}}
		review.APIVersion, review.Kind = "authorization.k8s.io/v1", "SelfSubjectAccessReview"
		err := w.api.Do(ctx, http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review, &review)
		var no *apiserver.Status
		switch {
		case errors.As(err, &no) && no.Code == http.StatusUnauthorized:
			return "it does not know this process's token: " + no.Message, true // the service account was deleted
		case err != nil:
			return "", false
		case review.Status.Allowed:
			return "", true
		}
		refused = append(refused, r.String())
	}
	return "this process's service account may not " + strings.Join(refused, ", nor "), true
}

// problems are those of this process's term.
func (w *writeRights) problems() []object.Problem {
	why := w.refused.Load()
	if why == nil {
		return nil
	}
	return []object.Problem{{ID: object.ID{Origin: w.origin, Kind: "Leader"}, Location: "Kubernetes", Code: problem.Pending, Severity: problem.Error,
		Message: errUnfit.Error() + ": " + *why + " (deploy/docs/kubernetes.md, Rights)"}}
}

// rightsDuty has a leader look at its rights; nothing: it has nothing to write.
func (i *ingester) rightsDuty(c ingesterConfig, of origin.Origin) []duty {
	must := mustWrite(c)
	if len(must) == 0 {
		return nil
	}
	w := &writeRights{api: c.api, must: must, waiting: i.lead.Waiting, origin: of, log: i.log, every: rightsEvery, after: rightsAfter}
	return []duty{{fit: w.fit, problems: w.problems}}
}

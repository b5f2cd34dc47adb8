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

// mustWrite lists rights that a leader needs to write to Kubernetes. Each enabled task of a leader has at least one
// right in the list. The list is empty if a leader with this configuration writes nothing.
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

// writeRights checks a leader's own rights at the API server. A leader that may write nothing ends its term if another
// candidate waits. Without this check, a process of a former installation whose service account has lost its rights
// would lead as long as it runs.
type writeRights struct {
	api     *apiserver.Client
	must    []right                             // not empty
	waiting func(context.Context) (bool, error) // reports whether another candidate waits for the end of this term
	origin  origin.Origin
	log     *slog.Logger
	every   time.Duration // interval of requests to the API server
	after   time.Duration // time for which everything must be refused

	// The field refused is the reason why everything is refused. If something is allowed, or if this is not known yet,
	// it is nil.
	refused atomic.Pointer[string]
	gaveUp  int // consecutive terms that ended with errUnfit; used by one term at a time
}

const (
	rightsEvery  = 5 * time.Second
	rightsAfter  = 10 * time.Second
	rightsAtMost = time.Hour
)

// errUnfit is the error with which a leader without rights ends its term.
var errUnfit = errors.New("the API server refuses everything that a leader must write")

// fit checks the rights during one term. It returns an error that matches errUnfit when the leader has to end its term,
// else the error of ctx. The wait before errUnfit doubles with each consecutive term that ended with errUnfit, up to an
// hour. Without this wait, leadership would change all the time if no replica has the rights.
func (w *writeRights) fit(ctx context.Context) error {
	defer w.refused.Store(nil)
	var since time.Time // time since which everything is refused; zero: something is allowed, or this is not known yet
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
			w.log.Warn("the API server refuses everything that a leader must write: this process ends its term if another candidate waits",
				obs.KeyReason, why)
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

// ask asks the API server about the rights in w.must. If the API server refuses all of them, the result is the reason.
// If it allows one of them, the reason is empty. The result known is false if the API server does not answer.
func (w *writeRights) ask(ctx context.Context) (reason string, known bool) {
	ctx, cancel := context.WithTimeout(ctx, rightsEvery)
	defer cancel()
	var refused []string
	for _, r := range w.must {
		review := authorizationv1.SelfSubjectAccessReview{}
		review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Verb: r.verb, Group: r.group, Resource: r.resource, Subresource: r.subresource, Name: r.name}
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

// problems returns one problem while the API server refuses everything, else nil.
func (w *writeRights) problems() []object.Problem {
	why := w.refused.Load()
	if why == nil {
		return nil
	}
	return []object.Problem{{ID: object.ID{Origin: w.origin, Kind: "Leader"},
		Location: "Kubernetes", Code: problem.Pending, Severity: problem.Error,
		Message: errUnfit.Error() + ": " + *why + " (deploy/docs/kubernetes.md, Rights)"}}
}

// rightsDuty returns the leader's duty to check its rights. It returns nil if a leader writes nothing to Kubernetes.
func (i *ingester) rightsDuty(c ingesterConfig, of origin.Origin) []duty {
	must := mustWrite(c)
	if len(must) == 0 {
		return nil
	}
	w := &writeRights{api: c.api, must: must, waiting: i.lead.Waiting, origin: of, log: i.log, every: rightsEvery, after: rightsAfter}
	return []duty{{fit: w.fit, problems: w.problems}}
}

package removals

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/removal"
)

// Path is the path of the page of held removals. A held removal consists of objects that disappeared without a
// deletion. GET lists the held removals (List). POST with ?accept=ID accepts one of them, so that its objects are
// removed.
const Path = "/debug/removals"

// An operator needs the Kubernetes right to Verb on Resource in the API group Group. The right must hold in the
// namespace of the removal. For a removal that covers all namespaces, it must hold in all namespaces.
const (
	Group    = "navarch.io"
	Resource = "removals"
	Verb     = "accept"
)

// patience bounds one request to the API server.
const patience = 10 * time.Second

// Acceptor answers requests of operators to accept a held removal. Make it with NewAcceptor. Safe for concurrent use.
type Acceptor struct {
	Keeper *Keeper // of this process; its Loop accepts the removals
	Known  *Known  // the held removals, in which an ID is looked up
	// API is the API server that authenticates and authorises the operators. nil: the configuration comes from files,
	// and callers who see all of /debug may accept.
	API *apiserver.Client

	turn chan struct{} // buffered (1), so that one request is processed at a time
}

// NewAcceptor returns an Acceptor with the given fields; api may be nil. It sends no request.
func NewAcceptor(k *Keeper, known *Known, api *apiserver.Client) *Acceptor {
	return &Acceptor{Keeper: k, Known: known, API: api, turn: make(chan struct{}, 1)}
}

// Accept answers a POST request, whose query parameter accept has the ID of a removal. With an API, the bearer token of
// the request identifies the operator. Without an API, the parameter all decides. It is true if the caller may see
// everything below /debug. The parameter who is the caller's name for the log. Accept processes one request at a time.
// A request takes at most 20 s, including its wait for earlier ones. After a success, the status is 200 and the text
// has the number of objects.
//
// Refusals: 421 if this process does not lead or a is nil; 429 if earlier requests take too long; 401 if the token is
// missing or unknown, or the API server cannot review it; 403 if the caller may not accept, or the API server cannot
// review the right; 404 if no held removal has the ID; 503 if the time ends before the removal is accepted.
func (a *Acceptor) Accept(who string, all bool, w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*patience)
	defer cancel()
	hold, status, err := a.accept(ctx, who, all, r)
	if err != nil {
		http.Error(w, err.Error(), status)
		return
	}
	fmt.Fprintf(w, "%d objects are removed (%s)\n", hold.Count, hold.KindCounts())
}

// accept returns the accepted removal, or the status and the reason of a refusal.
func (a *Acceptor) accept(ctx context.Context, who string, all bool, r *http.Request) (removal.Hold, int, error) {
	if a == nil || !a.Keeper.leads.Load() {
		return removal.Hold{}, http.StatusMisdirectedRequest, errors.New("this process does not lead: ask the leader")
	}
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return removal.Hold{}, http.StatusTooManyRequests, errors.New("another removal is being accepted: try again")
	}
	id := r.URL.Query().Get("accept")
	user, status, err := a.authorise(ctx, who, all, id, r.Header.Get("Authorization"))
	if err != nil {
		a.Keeper.Log.Warn("a removal was not accepted", obs.KeyRemoval, fmt.Sprintf("%.40q", id), obs.KeyUser, user, obs.KeyError, err)
		return removal.Hold{}, status, err
	}
	hold, ok := a.Keeper.Loop.Accept(ctx, id)
	switch {
	case !ok && ctx.Err() != nil:
		return hold, http.StatusServiceUnavailable, errors.New("the leader is busy, and the removal is still held: try again")
	case !ok:
		return hold, http.StatusNotFound, notHeld(id)
	}
	a.Keeper.Log.Warn("a held removal was accepted: the objects are removed",
		obs.KeyRemoval, hold.ID, obs.KeyUser, user, obs.KeyObjects, hold.Count,
		obs.KeyKinds, hold.KindCounts(), "namespace", hold.Namespace)
	return hold, http.StatusOK, nil
}

func notHeld(id string) error {
	return fmt.Errorf("no held removal has the ID %.40q: navarchctl removals list shows the held removals", id)
}

// authorise returns the user's name for the log. If the user may not accept the removal, it returns an error and the
// HTTP status. With an API, it does so also if no held removal has the ID.
func (a *Acceptor) authorise(ctx context.Context, who string, all bool, id, header string) (user string, status int, err error) {
	if a.API == nil {
		if !all {
			return who, http.StatusForbidden,
				errors.New("removals are accepted on the machine of the leader, or with a token of the system namespace")
		}
		return who, http.StatusOK, nil
	}
	token, bearer := strings.CutPrefix(header, "Bearer ")
	if !bearer || token == "" {
		return who, http.StatusUnauthorized, errors.New("want a token of the cluster, as navarchctl removals accept sends it")
	}
	hold, held := a.held(id)
	info, err := a.review(ctx, token)
	if err != nil {
		return who, http.StatusUnauthorized, err
	}
	if err := a.access(ctx, info, hold); err != nil { // comes first, since only permitted users may learn whether the removal exists
		return info.Username, http.StatusForbidden, err
	}
	if !held {
		return info.Username, http.StatusNotFound, notHeld(id)
	}
	return audited(info), http.StatusOK, nil
}

// held returns a held removal by its ID. Without such a removal it returns false and the zero Hold, which covers all
// namespaces.
func (a *Acceptor) held(id string) (removal.Hold, bool) {
	for _, h := range a.Known.Of(func(string) bool { return true }).Held {
		if h.ID == id {
			return h, true
		}
	}
	return removal.Hold{}, false
}

// review authenticates a token at the API server (TokenReview).
func (a *Acceptor) review(ctx context.Context, token string) (authenticationv1.UserInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	asked := authenticationv1.TokenReview{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"},
		Spec: authenticationv1.TokenReviewSpec{Token: token}}
	var said authenticationv1.TokenReview
	if err := a.API.Do(ctx, http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews", asked, &said); err != nil {
		return authenticationv1.UserInfo{}, fmt.Errorf("token review: %w", err)
	}
	if !said.Status.Authenticated {
		return authenticationv1.UserInfo{}, fmt.Errorf("the API server does not know the token: %.200s", said.Status.Error)
	}
	return said.Status.User, nil
}

// access returns nil if the API server permits a user to accept a removal (SubjectAccessReview).
func (a *Acceptor) access(ctx context.Context, user authenticationv1.UserInfo, hold removal.Hold) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	asked := authorizationv1.SubjectAccessReview{TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SubjectAccessReview"},
		Spec: authorizationv1.SubjectAccessReviewSpec{User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Group: Group, Resource: Resource, Verb: Verb, Namespace: hold.Namespace}}}
	var said authorizationv1.SubjectAccessReview
	if err := a.API.Do(ctx, http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", asked, &said); err != nil {
		return fmt.Errorf("subject access review: %w", err)
	}
	if !said.Status.Allowed || said.Status.Denied {
		where := "all namespaces"
		if hold.Namespace != "" {
			where = "namespace " + hold.Namespace
		}
		return fmt.Errorf("user %q may not %s %s.%s in %s: %.200s", user.Username, Verb, Resource, Group, where, said.Status.Reason)
	}
	return nil
}

// audited returns the user's name and the credential's ID for the log. The API server's audit log has the same ID.
func audited(user authenticationv1.UserInfo) string {
	if id := user.Extra["authentication.kubernetes.io/credential-id"]; len(id) > 0 {
		return user.Username + " (" + id[0] + ")"
	}
	return user.Username
}

// Package admit serves admission webhooks. It decodes AdmissionReviews of Kubernetes API servers, calls the Handler for
// the path of the request, and encodes the responses. The size, number and time of reviews are bounded. Its Server is
// an http.Handler. The caller provides TLS and limits the connections.
//
// Owns: the limits for the bytes and the number of reviews in progress, for each host and in total. Reads: bodies of
// requests. Never: decodes a review before the review's JSON values are counted; decides about the admission of
// objects, except objects that are too large; trusts the user that a request names, because callers of webhooks show no
// credential.
package admit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"navarch.io/navarch/store/crash"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/remote"
	"navarch.io/navarch/store/turns"
)

// Handler answers the reviews of one webhook. It must be safe for concurrent use. It may also implement Chooser.
type Handler interface {
	// Admit answers a review. The parameter path is the path of the request's URL. The context ends at the review's
	// timeout, or when the client is gone. Admit must return soon after the context ends. For a large review
	// (weight.large), Admit has at most half of Config.Timeout. The handler owns the request. The Server writes the
	// request's UID into the response, so a response must not be shared. A nil response or a panic becomes status 500,
	// and the API server then follows the webhook's failurePolicy. Admit is not called for objects that are too large
	// (weight.tooHeavy).
	Admit(ctx context.Context, path string, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse
}

// Config configures a Server. Zero fields have defaults.
type Config struct {
	// MaxBody bounds a review in bytes; 0 stands for 8 MiB. A review has an object and its previous version. etcd
	// stores each in at most 1.5 MiB, and its JSON form may be larger.
	MaxBody int64
	// MaxHost bounds the bytes of the reviews in progress of one host; 0 stands for 32 MiB. A host is an IPv4 address,
	// or the /64 of an IPv6 address. MaxAll bounds the bytes of the reviews of all hosts; 0 stands for 64 MiB. One
	// review at a time may exceed both bounds, by at most MaxBody. Further reviews wait.
	MaxHost, MaxAll int64
	// Ahead reports whether reviews from an address, such as an API server's, precede waiting reviews of other
	// addresses. It must be safe for concurrent use. If it is nil, no review precedes others.
	Ahead func(netip.Addr) bool
	// BodyTime bounds the time in which the body of a review arrives; 0 stands for 2 s. Waits for MaxHost and MaxAll do
	// not count.
	BodyTime time.Duration
	// Timeout bounds a review from its header to its response; 0 stands for 10 s, the default timeout of API servers. A
	// shorter timeout in the request's URL (?timeout=) takes precedence.
	Timeout time.Duration
	Crashes *crash.Log   // records panics of handlers; nil stands for a new Log
	Log     *slog.Logger // nil stands for slog.Default()
}

// Server is an http.Handler for reviews. New creates it. All handlers must be registered before it serves. ServeHTTP is
// safe for concurrent use. Its Config contains the defaults and must not be changed.
type Server struct {
	Config
	mux      *http.ServeMux
	room     *room
	webhooks []*webhook
	clients  *obs.Sampled
}

// webhook is a handler with its name. The fields small and large limit the number of reviews that are decoded and
// answered at once, so webhooks do not delay each other. A review that waits for its turn occupies only the memory of
// its body.
type webhook struct {
	name    string
	handler Handler
	failed  func(status int)
	small   *turns.Line
	large   *turns.Line // one turn, for large reviews (weight.large)
}

// lines creates the limits. One host gets at most half of the turns for reviews that are not large. One namespace gets
// at most half of the turns of a host.
func (h *webhook) lines() {
	perHost := max(2, runtime.GOMAXPROCS(0))
	h.small, h.large = turns.NewOfParts(2*perHost, perHost, perHost/2), turns.New(1, 1)
}

// New returns a Server without handlers.
func New(c Config) *Server {
	c.MaxBody, c.MaxHost, c.MaxAll = cmp.Or(c.MaxBody, 8<<20), cmp.Or(c.MaxHost, 32<<20), cmp.Or(c.MaxAll, 64<<20)
	c.Timeout, c.BodyTime = cmp.Or(c.Timeout, 10*time.Second), cmp.Or(c.BodyTime, 2*time.Second)
	if c.Ahead == nil {
		c.Ahead = func(netip.Addr) bool { return false }
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Crashes == nil {
		c.Crashes = crash.New(c.Log)
	}
	return &Server{Config: c, mux: http.NewServeMux(), room: newRoom(c.MaxHost, c.MaxAll),
		clients: obs.NewSampled(c.Log)}
}

// Register makes a handler answer the reviews at a path prefix, such as /validate, and at all paths below it. A slash
// at the end of prefix is ignored. An empty prefix stands for all paths. Register panics if the prefix is registered
// already, or is not a valid pattern of http.ServeMux. The parameter name is the webhook's name in metrics and logs.
// The function failed, which may be nil, is called with the HTTP status when a request ends without a review to send.
// Calls of failed may be concurrent.
func (s *Server) Register(name, prefix string, h Handler, failed func(status int)) {
	hook := &webhook{name: name, handler: h, failed: failed}
	hook.lines()
	s.webhooks = append(s.webhooks, hook)
	serve := func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, hook) }
	prefix = strings.TrimSuffix(prefix, "/")
	if prefix != "" {
		s.mux.HandleFunc(prefix, serve)
	}
	s.mux.HandleFunc(prefix+"/", serve)
}

// ServeHTTP implements http.Handler. It answers a review, or responds with an HTTP error. The status is 404 for a path
// without a handler, and 400, 405, 408, 413 or 415 for an invalid request. It is 503 if too many reviews are in
// progress or the time has ended, and 500 after a fault of the handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// refusal is an HTTP error that is sent in place of an AdmissionReview.
type refusal struct {
	status int
	cause  string // one of a few constants, for the log
	err    error
}

// answerTime is the time that a client has, after the review's timeout, to read the response.
const answerTime = 5 * time.Second

func (s *Server) serve(w http.ResponseWriter, r *http.Request, h *webhook) {
	began, timeout := time.Now(), s.timeout(r)
	_ = http.NewResponseController(w).SetWriteDeadline(began.Add(timeout + answerTime)) // writers in tests have no deadlines
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	from := clientOf(r)
	held := &claim{host: remote.Host(net.TCPAddrFromAddrPort(from)), ahead: s.Ahead(from.Addr().Unmap())}
	defer s.room.leave(held) // the review's bytes stay counted until the response, which is about as large, is written
	review, no := s.review(ctx, w, r, h, held)
	result := "refused"
	switch {
	case no != nil:
		result = "error"
		s.clients.Warn("an admission review was not answered", no.cause, obs.KeyName, h.name, obs.KeyPeer, r.RemoteAddr, obs.KeyError, no.err)
		if h.failed != nil {
			h.failed(no.status)
		}
		http.Error(w, no.err.Error(), no.status)
	default:
		if review.Response.Allowed {
			result = "allowed"
		}
		s.answer(w, review)
	}
	took := time.Since(began)
	obs.AdmissionReviews.WithLabelValues(h.name, result).Inc()
	obs.AdmissionTime.WithLabelValues(h.name).Observe(took.Seconds())
	s.Log.Debug("admission review answered", obs.KeyName, h.name, "result", result, obs.KeyPeer, r.RemoteAddr, obs.KeyTook, took)
}

// timeout returns the time limit of a request: the shorter of ?timeout= and Config.Timeout.
func (s *Server) timeout(r *http.Request) time.Duration {
	if asked, err := time.ParseDuration(r.URL.Query().Get("timeout")); err == nil && asked > 0 {
		return min(asked, s.Timeout)
	}
	return s.Timeout
}

// review reads a request and calls the webhook's handler. It returns either the review to send or a refusal.
func (s *Server) review(ctx context.Context, w http.ResponseWriter, r *http.Request, h *webhook,
	held *claim) (*admissionv1.AdmissionReview, *refusal) {
	if r.Method != http.MethodPost {
		return nil, &refusal{http.StatusMethodNotAllowed, "method", fmt.Errorf("method %.20q: an AdmissionReview is POSTed", r.Method)}
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return nil, &refusal{http.StatusUnsupportedMediaType, "media type", errors.New("want Content-Type application/json")}
	}
	body, no := s.read(ctx, w, r, held)
	if no != nil {
		return nil, no
	}
	weight, err := weigh(body)
	if err != nil {
		return nil, &refusal{http.StatusBadRequest, "decode", fmt.Errorf("the body is not an AdmissionReview: %w", err)}
	}
	line, turn := h.small, turns.Turn{Host: held.host, Part: weight.namespace, Ahead: held.ahead}
	if weight.large() {
		line = h.large
	}
	if !line.EnterAs(turn, ctx.Done()) {
		return nil, noRoom
	}
	defer line.LeaveAs(turn)
	if weight.large() { // leaves time for other large reviews, which wait for this one
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.Timeout/2)
		defer cancel()
	}
	return s.admit(ctx, r.URL.Path, body, weight.tooHeavy(), h.handler)
}

// noRoom is the response to a request whose time ended while it waited because of other reviews.
var noRoom = &refusal{http.StatusServiceUnavailable, "no room", errors.New("too many reviews are in progress")}

// clientOf returns the address of a request's client, or the zero AddrPort if the address does not parse.
func clientOf(r *http.Request) netip.AddrPort {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	return from
}

// admit decodes a review and calls its handler. A panic of the handler ends only this review. If the parameter heavy is
// not nil, the objects are too large, and heavy is the reason. In this case, Admit is not called.
func (s *Server) admit(ctx context.Context, path string, body []byte, heavy error, h Handler) (review *admissionv1.AdmissionReview,
	no *refusal) {
	defer func() {
		if fault := recover(); fault != nil {
			_ = s.Crashes.Caught(crash.Admission, fault, obs.KeyName, path) // the client gets no details
			review, no = nil, &refusal{http.StatusInternalServerError, "panic",
				errors.New("internal error: this review was ended; the server's log says why")}
		}
	}()
	request, version, err := decode(body)
	if err != nil {
		return nil, &refusal{http.StatusBadRequest, "decode", err}
	}
	var response *admissionv1.AdmissionResponse
	if heavy != nil {
		response = unread(h, request, heavy)
	} else {
		response = h.Admit(ctx, path, request)
	}
	switch {
	case ctx.Err() != nil:
		return nil, &refusal{http.StatusServiceUnavailable, "time", errors.New("the review took too long")}
	case response == nil:
		return nil, &refusal{http.StatusInternalServerError, "no answer",
			errors.New("internal error: there is no answer to this review; the server's log says why")}
	}
	response.UID = request.UID
	return &admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "AdmissionReview"}, Response: response}, nil
}

// Versions of admission.k8s.io. Their AdmissionReviews have equal fields. The webhook's configuration names the
// versions that an API server may send
// (https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/).
const (
	versionV1      = "admission.k8s.io/v1"
	versionV1beta1 = "admission.k8s.io/v1beta1"
)

// decode decodes an AdmissionReview. It returns the request and the apiVersion, which the response repeats. The uid may
// be empty, because istioctl kube-inject sends no uid.
func decode(body []byte) (*admissionv1.AdmissionRequest, string, error) {
	var review admissionv1.AdmissionReview
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &review); err != nil {
		return nil, "", fmt.Errorf("the body is not an AdmissionReview: %w", err)
	}
	switch {
	case review.APIVersion != versionV1 && review.APIVersion != versionV1beta1, review.Kind != "AdmissionReview":
		return nil, "", fmt.Errorf("apiVersion %.60q, kind %.60q: want %s or %s, AdmissionReview", review.APIVersion, review.Kind, versionV1,
			versionV1beta1)
	case review.Request == nil:
		return nil, "", errors.New("the AdmissionReview has no request")
	}
	return review.Request, review.APIVersion, nil
}

func (s *Server) answer(w http.ResponseWriter, review *admissionv1.AdmissionReview) {
	body, err := encode(review)
	if err != nil {
		http.Error(w, "internal error: the answer cannot be encoded", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // the client may be gone
}

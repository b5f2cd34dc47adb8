package scene

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"navarch.io/navarch/loadtest/cluster"
	"navarch.io/navarch/loadtest/gauge"
	"navarch.io/navarch/loadtest/mesh"
)

const (
	reviewRate = 200 // per second, of each webhook
	reviewSpan = 20 * time.Second
	// reviewTimeout is longer than an API server's (10 s), so that a busy machine gives a figure and not an error.
	reviewTimeout = time.Minute
)

// reviewed changes the settings to a world with Istio's objects for the validation webhook.
func reviewed(s *mesh.Settings) {
	overTLS(s)
	s.VirtualServices, s.DestinationRules, s.PolicyEvery = s.Services, s.Services, 1
}

// webhooks sends reviews of the world's objects to one server, as an API server does. It measures each answer from the
// moment at which the review was due.
func webhooks(s *stage) error {
	if err := s.joined(nil); err != nil {
		return err
	}
	if err := s.cluster.Injection(s.ctx); err != nil {
		return err
	}
	client, err := reviewer(s.starter.ca, "127.0.0.1")
	if err != nil {
		return err
	}
	objects, err := cluster.Objects(s.mesh.Files())
	if err != nil {
		return err
	}
	for _, hook := range []struct {
		row, path string
		kinds     map[string]bool
		right     func(*admissionv1.AdmissionResponse) error
	}{
		{rowInjection, "/inject", map[string]bool{"Pod": true}, patched},
		{rowValidation, "/validate", map[string]bool{"VirtualService": true, "DestinationRule": true, "AuthorizationPolicy": true}, allowed},
	} {
		reviews, err := reviewsOf(objects, hook.kinds)
		if err != nil {
			return err
		}
		url := "https://" + s.starter.webhooks + hook.path
		ask := func(i int) error {
			answer, err := review(client, url, reviews[i%len(reviews)])
			if err == nil {
				err = hook.right(answer)
			}
			return err
		}
		// The server may not have read the ConfigMap, or compiled the definitions, yet.
		if err := s.await("the webhook "+hook.path+" answers", func() error { return ask(0) }); err != nil {
			return err
		}
		began := spent(s.watched())
		n, err := s.reviews(hook.row, hook.path, ask)
		if err != nil {
			return err
		}
		s.cost(hook.row+": server CPU per review", "ms", ms(spent(s.watched())-began)/float64(n))
		if hook.path == "/inject" {
			if err := s.flooded(url, reviews[0], func() error {
				_, err := s.reviews(rowFlooded, hook.path, ask)
				return err
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// flooders is the number of concurrent reviews of an attacker without a credential who tries to delay the API server.
const flooders = 128

// flooded runs measure while another host than the API server's sends reviews of slow Pods, as many as possible.
func (s *stage) flooded(url string, body []byte, measure func() error) error {
	body, err := large(body)
	if err != nil {
		return err
	}
	client, err := reviewer(s.starter.ca, attackers)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(s.ctx)
	var answered, refused atomic.Int64
	var all sync.WaitGroup
	for range flooders {
		all.Go(func() {
			for ctx.Err() == nil {
				if _, err := review(client, url, body); err != nil {
					refused.Add(1)
				} else {
					answered.Add(1)
				}
			}
		})
	}
	err = measure()
	stop()
	all.Wait()
	s.note("The flood: %d reviews of %d KB were answered, %d were not.", answered.Load(), len(body)>>10, refused.Load())
	if err == nil && answered.Load() == 0 {
		err = errors.New("the flood: no review was answered, so nothing was measured")
	}
	return err
}

// large returns a review of a Pod with a hundred containers.
func large(body []byte) ([]byte, error) {
	var whole struct {
		metav1.TypeMeta
		Request *admissionv1.AdmissionRequest `json:"request"`
	}
	if err := json.Unmarshal(body, &whole); err != nil {
		return nil, err
	}
	var pod corev1.Pod
	if err := json.Unmarshal(whole.Request.Object.Raw, &pod); err != nil {
		return nil, err
	}
	one := pod.Spec.Containers[0]
	for i := range 20 {
		one.Env = append(one.Env, corev1.EnvVar{Name: fmt.Sprint("VARIABLE_", i), Value: "of some length"})
	}
	for i := range 100 {
		one.Name = fmt.Sprint("more-", i)
		pod.Spec.Containers = append(pod.Spec.Containers, one)
	}
	raw, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	whole.Request.Object = runtime.RawExtension{Raw: raw}
	return json.Marshal(whole)
}

// errNoTurn reports a review that the server ended with status 503: its time was over, or too many waited. It counts as
// one of reviewTimeout.
var errNoTurn = errors.New("the server did not answer the review")

// reviews sends reviews at the rate, whether or not earlier answers have arrived, and returns their number. A review
// that the server ends with status 503 is in the figure and in a note; any other error ends the scenario.
func (s *stage) reviews(row, path string, ask func(i int) error) (n uint64, err error) {
	s.enter(fmt.Sprintf("%d reviews a second to %s", reviewRate, path))
	h := &gauge.Histogram{}
	var answers sync.WaitGroup
	var mu sync.Mutex // guards failed
	var failed error
	var late atomic.Int64
	span := s.span(reviewSpan)
	err = s.schedule(time.Second/reviewRate, span, func(i int, due time.Time) error {
		answers.Go(func() {
			err := ask(i)
			if errors.Is(err, errNoTurn) {
				h.Record(reviewTimeout)
				late.Add(1)
				return
			}
			h.Record(time.Since(due))
			mu.Lock()
			defer mu.Unlock()
			if err != nil && failed == nil {
				failed = fmt.Errorf("%s: %w", path, err)
			}
		})
		return nil
	})
	answers.Wait()
	if err = errors.Join(err, failed); err != nil {
		return 0, err
	}
	if n := late.Load(); n > 0 {
		s.note("%d of %d reviews to %s got status 503.", n, h.Count(), path)
	}
	s.row(row, "ms", ms(h.Quantile(.99)))
	s.latency("review to answer: "+path, h)
	return h.Count(), nil
}

// reviewer returns an HTTP client like an API server's, with a source address: connections stay open, and the server's
// certificate is verified.
func reviewer(ca, from string) (*http.Client, error) {
	raw, err := os.ReadFile(filepath.Join(ca, fileRoot))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(raw)
	return &http.Client{Timeout: reviewTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: reviewRate,
		DialContext:     (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext,
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: serverName, MinVersion: tls.VersionTLS12}}}, nil
}

// reviewsOf returns the bodies of an API server's reviews for the creation of objects of some kinds.
func reviewsOf(objects []*unstructured.Unstructured, kinds map[string]bool) (bodies [][]byte, err error) {
	for _, o := range objects {
		if !kinds[o.GetKind()] {
			continue
		}
		o = o.DeepCopy()
		unstructured.RemoveNestedField(o.Object, "status")
		raw, err := o.MarshalJSON()
		if err != nil {
			return nil, err
		}
		of := o.GroupVersionKind()
		body, err := json.Marshal(map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
			"request": admissionv1.AdmissionRequest{UID: types.UID(fmt.Sprint(len(bodies))),
				Kind: metav1.GroupVersionKind{Group: of.Group, Version: of.Version,
					Kind: of.Kind}, Namespace: o.GetNamespace(),
				Name: o.GetName(), Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw}}})
		if err != nil {
			return nil, err
		}
		bodies = append(bodies, body)
	}
	if len(bodies) == 0 {
		err = fmt.Errorf("the world has no object of %v", kinds)
	}
	return bodies, err
}

// review sends one review.
func review(client *http.Client, url string, body []byte) (*admissionv1.AdmissionResponse, error) {
	res, err := client.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	var answer admissionv1.AdmissionReview
	switch res.StatusCode {
	case http.StatusOK:
	case http.StatusServiceUnavailable:
		return nil, fmt.Errorf("%w: %.300s", errNoTurn, text)
	default:
		return nil, fmt.Errorf("%s: %.300s", res.Status, text)
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Response == nil {
		return nil, fmt.Errorf("no answer (%w): %.300s", err, text)
	}
	return answer.Response, nil
}

// allowed returns an error if an object of the world was refused.
func allowed(r *admissionv1.AdmissionResponse) error {
	if !r.Allowed {
		return fmt.Errorf("refused: %v", r.Result)
	}
	return nil
}

// patched returns an error if a Pod of the world got no proxy.
func patched(r *admissionv1.AdmissionResponse) error {
	if err := allowed(r); err != nil || bytes.Contains(r.Patch, []byte("istio-proxy")) {
		return err
	}
	return fmt.Errorf("a Pod got no proxy: %.300s", r.Patch)
}

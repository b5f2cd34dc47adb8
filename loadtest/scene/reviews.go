package scene

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"navarch.io/navarch/loadtest/attack"
	"navarch.io/navarch/loadtest/cluster"
	"navarch.io/navarch/loadtest/gauge"
)

// Rows of reviews during attacks.
const (
	rowReviewed      = "p99 of objects made through the API server"
	rowReviewLate    = "good reviews that the webhooks took more than 500 ms for"
	rowReviewShare   = "the webhooks' share of p99, at most"
	rowReviewRefused = "good objects that were refused"
	rowReviewRSS     = "RSS grown"
)

func rowBeside(what, figure string) string { return figure + ", beside " + what }

const (
	goodEvery    = 50 * time.Millisecond // interval of good objects
	besideSpan   = 20 * time.Second      // duration of each attack
	besideAll    = "all at once"
	besideNone   = "nothing"
	besideIdle   = "a tenant's objects that no webhook is asked about" // the API server's own cost for these objects
	byTenant     = " of a tenant"
	tenantAtOnce = 2 // concurrent requests of a tenant
)

// fourSources are the source addresses of attackers without a credential.
var fourSources = []string{"127.0.0.66", "127.0.0.68", "127.0.0.69", "127.0.0.70"}

// tenantAttacks are the attacks of a tenant through the API server.
var tenantAttacks = map[string]func() []byte{
	attack.ReviewsHeavy:   func() []byte { return attack.HeavyFilter("tenant", attack.TenantValues) },
	attack.ReviewsPods:    func() []byte { return attack.LargePod("tenant", attack.LargeVolumes) },
	attack.ReviewsWrong:   func() []byte { return attack.WrongRule("tenant") },
	attack.ReviewsSubnets: func() []byte { return attack.ManySubnets("tenant", "subnets", attack.LargeSubnets) },
	attack.ReviewsLimits:  func() []byte { return attack.ManyConditions("tenant", attack.MostConditions) },
}

// besides returns the rounds of the scenario: each attack from four sources and by a tenant, then all together.
func besides() (all []string) {
	for _, name := range attack.ReviewAttacks {
		all = append(all, name)
		if tenantAttacks[name] != nil {
			all = append(all, name+byTenant)
		}
	}
	return append(all, besideAll)
}

// reviewTargets bound the webhooks' time for good reviews. The API server's own time for a tenant's objects has rows
// without targets: the p99 of whole requests, also beside objects that no webhook is asked about.
func reviewTargets() map[string]Target {
	all := map[string]Target{}
	for _, what := range besides() {
		all[rowBeside(what, rowReviewLate)], all[rowBeside(what, rowReviewRefused)] = Target{Value: 1}, Target{}
		all[rowBeside(what, rowReviewRSS)] = Target{Value: 256}
	}
	return all
}

// besideReviews makes good Pods and VirtualServices by dry runs of the API server, during attacks on the webhooks that
// it calls.
func besideReviews(s *stage) error {
	var good []*unstructured.Unstructured
	prepare := func() (err error) {
		if err := errors.Join(s.cluster.Injection(s.ctx), s.configureWebhooks()); err != nil {
			return err
		}
		if good, err = s.goodObjects(); err != nil {
			return err
		}
		return s.await("the webhooks answer", func() error { return errors.Join(s.makeGood(good, 0), s.makeGood(good, 1)) })
	}
	return s.attacked(prepare, func(c *cage) error { return s.playReviews(c, good) })
}

func (s *stage) playReviews(c *cage, good []*unstructured.Unstructured) error {
	for _, what := range append([]string{besideNone, besideIdle}, besides()...) {
		if only := s.Attacks; len(only) > 0 && what != besideNone && !slices.Contains(only, strings.TrimSuffix(what, byTenant)) {
			continue
		}
		if err := s.besideOne(what, good, c); err != nil {
			return err
		}
	}
	return nil
}

// besideOne measures good objects during one attack.
func (s *stage) besideOne(what string, good []*unstructured.Unstructured, c *cage) error {
	names, tenant := []string{strings.TrimSuffix(what, byTenant)}, strings.HasSuffix(what, byTenant)
	switch what {
	case besideNone:
		names = nil
	case besideAll, besideIdle:
		names, tenant = attack.ReviewAttacks, true
	}
	s.enter("good objects, beside " + what)
	_, before := usage(s.watched())
	reviewed, err := s.cluster.Reviews(s.ctx)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	var sources []*attacking
	if len(names) > 0 && (!tenant || what == besideAll) {
		if sources, err = s.fromSources(c, names); err != nil {
			return err
		}
	}
	var all sync.WaitGroup
	for _, name := range names {
		if tenant {
			s.tenant(ctx, &all, name, what == besideIdle)
		}
	}
	var peak uint64
	all.Go(func() { peak = s.peak(ctx) })
	h, refused, err := s.goodSpan(good)
	stop()
	all.Wait()
	for _, a := range sources {
		counts, _, ended := a.end()
		err = errors.Join(err, ended)
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			s.note("Attack %s, one of four sources, beside %s: %s.", name, what, counts[name])
		}
	}
	since, failed := s.cluster.Reviews(s.ctx)
	since = since.Since(reviewed)
	s.row(rowBeside(what, rowReviewed), "ms", ms(h.Quantile(.99)))
	s.row(rowBeside(what, rowReviewShare), "ms", 1000*since.Quantile(.99))
	s.row(rowBeside(what, rowReviewLate), "%", 100*(1-since.Within(.5)))
	s.row(rowBeside(what, rowReviewRefused), "", float64(refused))
	s.cost(rowBeside(what, rowReviewRSS), "MB", mb(max(peak, before))-mb(before))
	s.latency("made through the API server, beside "+what, h)
	return errors.Join(err, failed, s.ctx.Err(), s.servers[0].alive())
}

// fromSources starts attackers at each of the four sources.
func (s *stage) fromSources(c *cage, names []string) (all []*attacking, err error) {
	for _, from := range fourSources {
		a, err := startAttack(c, append(slices.Clone(s.AttackArgs), "--addr", s.servers[0].Addr, "--webhooks", s.starter.webhooks, "--from", from,
			"--only", strings.Join(names, ","), "--even", "--connections", strconv.Itoa(attack.MinConnections)))
		if err != nil {
			for _, begun := range all {
				begun.kill()
			}
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

// goodSpan makes good objects on a schedule, whether or not earlier ones are finished.
func (s *stage) goodSpan(good []*unstructured.Unstructured) (h *gauge.Histogram, refused int, err error) {
	h = &gauge.Histogram{}
	var mu sync.Mutex
	var answers sync.WaitGroup
	err = s.schedule(goodEvery, s.span(besideSpan), func(i int, due time.Time) error {
		answers.Go(func() {
			err := s.makeGood(good, i)
			h.Record(time.Since(due))
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				refused++
				s.note("A good object was refused: %.300s.", err)
			}
		})
		return nil
	})
	answers.Wait()
	return h, refused, err
}

// makeGood makes one object by a dry run; a Pod must get its proxy.
func (s *stage) makeGood(good []*unstructured.Unstructured, i int) error {
	made, err := s.cluster.Try(s.ctx, good[i%len(good)])
	if err != nil || made.GetKind() != "Pod" {
		return err
	}
	if text, err := made.MarshalJSON(); err != nil || !bytes.Contains(text, []byte("istio-proxy")) {
		return errors.Join(err, fmt.Errorf("Pod %s got no proxy", made.GetName()))
	}
	return nil
}

// unasked is a label that excludes objects from the webhooks.
const unasked = "unasked"

// tenant repeats requests for a tenant's objects until ctx ends. With idle, the API server calls no webhook for them.
func (s *stage) tenant(ctx context.Context, all *sync.WaitGroup, name string, idle bool) {
	make := tenantAttacks[name]
	if make == nil {
		return
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(make(), &object.Object); err != nil {
		panic(err) // our own text
	}
	if idle {
		object.SetLabels(map[string]string{unasked: "true"})
	}
	for range tenantAtOnce {
		all.Go(func() {
			for ctx.Err() == nil {
				_, _ = s.cluster.Try(ctx, object) // refused or slow: only the effect on others is measured
			}
		})
	}
}

// goodObjects returns Pods and VirtualServices of the world alternately, with unused names.
func (s *stage) goodObjects() (all []*unstructured.Unstructured, err error) {
	objects, err := cluster.Objects(s.mesh.Files())
	if err != nil {
		return nil, err
	}
	var kinds [2][]*unstructured.Unstructured
	for _, o := range objects {
		at := slices.Index([]string{"Pod", "VirtualService"}, o.GetKind())
		if at < 0 {
			continue
		}
		o = o.DeepCopy()
		o.SetName(o.GetName() + "-tried")
		unstructured.RemoveNestedField(o.Object, "status")
		kinds[at] = append(kinds[at], o)
	}
	for i := range min(len(kinds[0]), len(kinds[1])) {
		all = append(all, kinds[0][i], kinds[1][i])
	}
	if len(all) == 0 {
		err = errors.New("the world has no Pods, or no VirtualServices")
	}
	return all, err
}

// configureWebhooks makes the API server call the one server for Pods and Istio's objects.
func (s *stage) configureWebhooks() error {
	root, err := os.ReadFile(filepath.Join(s.starter.ca, fileRoot))
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	for _, one := range []struct{ kind, path, group, version, resource string }{
		{"MutatingWebhookConfiguration", "/inject", "", "v1",
			"pods"}, {"ValidatingWebhookConfiguration", "/validate", "networking.istio.io", "*", "*"}} {
		text, err := json.Marshal(map[string]any{"apiVersion": "admissionregistration.k8s.io/v1",
			"kind": one.kind, "metadata": map[string]any{"name": "attacked"}, "webhooks": []any{map[string]any{
				"name": "attacked.navarch.io", "failurePolicy": "Fail",
				"sideEffects": "None", "admissionReviewVersions": []string{"v1"}, "timeoutSeconds": 10,
				"objectSelector": map[string]any{"matchExpressions": []any{map[string]any{"key": unasked, "operator": "DoesNotExist"}}},
				"clientConfig":   map[string]any{"url": "https://" + s.starter.webhooks + one.path, "caBundle": base64.StdEncoding.EncodeToString(root)},
				"rules": []any{map[string]any{"apiGroups": []string{one.group}, "apiVersions": []string{one.version},
					"resources": []string{one.resource}, "operations": []string{"CREATE"}}}}}})
		if err != nil {
			return err
		}
		files[one.kind] = text
	}
	_, err = s.cluster.Put(s.ctx, maps.All(files))
	return err
}

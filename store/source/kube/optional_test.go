package kube

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"navarch.io/navarch/store/problem"
)

// Another cluster is read completely without the kinds that Istio's reader may not read, once their lists were refused
// three times in a row, and a warning names them; of the config cluster no kind is optional. A right that is granted
// later ends the warning.
func TestOptionalKinds(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "", errors.New("no right"))
	for _, cluster := range []string{"west", ""} {
		s := newSource(Config{Grace: -1, Cluster: cluster}, nil)
		for _, k := range append([]kind{namespaces}, s.builtIn()...) {
			s.kinds[k.id()] = s.newFollower(k)
		}
		s.discover, s.settled, s.selection.ready = true, true, true
		d := &desk{t, s, time.Unix(1e6, 0)}
		optional := []string{"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount"}
		for f := range s.followers() {
			if !slices.Contains(optional, f.kind.kind) {
				d.list(f.kind.kind)
			}
		}
		refuse := func() {
			for _, kind := range optional {
				f := d.store(kind).f
				if f.fails(forbidden); s.need(f.kind) != needed {
					f.refuse()
				}
			}
		}
		for range refusals - 1 {
			refuse()
		}
		if s.complete {
			t.Errorf("cluster %q is complete after %d refusals", cluster, refusals-1)
		}
		d.store("Role").f.fails(errors.New("connection refused")) // the API server begins again
		refuse()
		if s.complete {
			t.Errorf("cluster %q is complete, and one kind was not refused so many times in a row", cluster)
		}
		for range refusals {
			refuse()
		}
		if want := cluster != ""; s.complete != want || slices.Equal(d.emitted(), []string{"synced"}) != want {
			t.Errorf("cluster %q is complete: %v, want %v", cluster, s.complete, want)
		}
		problems := s.Problems()
		if cluster == "" {
			if len(problems) != len(optional) || problems[0].Code != problem.Unreadable {
				t.Errorf("problems %v", problems)
			}
			continue
		}
		if len(problems) != 1 || problems[0].Code != problem.NotAllowed || problems[0].Severity != problem.Warning || !strings.Contains(problems[0].Message, strings.Join(optional, ", ")) {
			t.Errorf("problems %v", problems)
		}
		at := time.Unix(1e6, 0)
		for _, kind := range []string{"Pod", "Namespace"} {
			s.progress.record(kindID{kind: kind}, at)
		}
		if until, _ := s.ReadUntil(); !until.Equal(at) {
			t.Errorf("emitted up to %v, want %v", until, at)
		}
		if s.Accounts() {
			t.Error("it is about ServiceAccounts too")
		}
		for _, kind := range optional {
			d.store(kind).f.works()
			d.list(kind)
		}
		if problems := s.Problems(); len(problems) != 0 {
			t.Errorf("problems %v", problems)
		}
		if !s.Accounts() {
			t.Error("ServiceAccounts may be read, and it is not about them")
		}
	}
}

// A kind whose objects are only reported, such as the one whose definition istioctl leaves behind, delays nothing if it
// cannot be read: a warning names it.
func TestKindsThatAreOnlyReported(t *testing.T) {
	s := newSource(Config{Grace: -1}, nil)
	operator := s.custom("install.istio.io", "v1alpha1", "IstioOperator", "istiooperators", true)
	for _, k := range append([]kind{namespaces, operator}, s.builtIn()...) {
		s.kinds[k.id()] = s.newFollower(k)
	}
	s.discover, s.settled, s.selection.ready = true, true, true
	d := &desk{t, s, time.Unix(1e6, 0)}
	for f := range s.followers() {
		if f.kind.id() != operator.id() {
			d.list(f.kind.kind)
		}
	}
	if !s.allListed() {
		t.Error("it holds everything up")
	}
	s.synced()
	if !slices.Equal(d.emitted(), []string{"synced"}) {
		t.Error("it is not said that everything was emitted")
	}
	f := s.kinds[operator.id()]
	f.fails(apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "", errors.New("no right")))
	if p := s.Problems(); len(p) != 1 || p[0].ID.Kind != "IstioOperator" || p[0].Severity != problem.Warning || !strings.Contains(p[0].Message, "forbidden") {
		t.Errorf("problems %v", p)
	}
	if f.works(); len(s.Problems()) > 0 {
		t.Errorf("once it may be read: %v", s.Problems())
	}
}

package kube

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
)

func reference(namespace, name, by string) object.Reference {
	return object.Reference{To: object.ID{Kind: "Secret", Namespace: namespace, Name: name}, By: object.ID{Kind: "Gateway", Namespace: by, Name: "g"}}
}

// start makes followers that the test drives.
func (d *desk) start(kinds ...kind) {
	for _, k := range kinds {
		d.s.kinds[k.id()] = d.s.newFollower(k)
	}
}

func (d *desk) refer(references ...object.Reference) {
	d.s.Refer(references)
	d.s.followSecrets(d.start)
}

func (d *desk) secret(namespace, name string) store {
	f := d.s.kinds[referred(object.ID{Namespace: namespace, Name: name}).id()]
	if f == nil {
		d.t.Fatalf("Secret %s/%s is not read", namespace, name)
	}
	return store{f, f.kind}
}

// Synced is emitted once the referenced Secrets were listed, or cannot be read. A Secret without references is removed
// at once.
func TestSecretsAreFollowed(t *testing.T) {
	d := newDesk(t)
	d.s.complete, d.s.emittedSynced = false, false
	tls := func(name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: name}, Data: map[string][]byte{"tls.key": []byte(name)}}
	}
	expect := func(what string, want ...string) {
		t.Helper()
		got := d.emitted()
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: emitted %q, want %q", what, got, want)
		}
	}
	var all []object.Reference
	for _, name := range []string{"a", "b", "c", "d", "none"} {
		all = append(all, reference("edge", name, "apps"))
	}
	d.refer(all...)
	expect("nothing is listed")
	for _, name := range []string{"a", "b", "c"} {
		if err := d.secret("edge", name).Replace([]any{tls(name)}, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.secret("edge", "none").Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	expect("one is not listed", "put Secret edge/a", "put Secret edge/b", "put Secret edge/c")
	d.secret("edge", "d").f.fails(errors.New(`secrets "d" is forbidden`))
	expect("one may not be read", fmt.Sprint(object.Broken), "synced")
	if p := d.s.Problems(); len(p) != 1 || p[0].ID.Name != "d" || p[0].ID.Kind != "Secret" || p[0].Code != problem.Unreadable {
		t.Errorf("problems %v", p)
	}
	d.secret("edge", "d").f.works()
	if err := d.secret("edge", "d").Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	expect("it may, and is not there", "delete Secret edge/d")
	for _, name := range []string{"d", "none"} {
		if err := d.secret("edge", name).Add(tls(name)); err != nil {
			t.Fatal(err)
		}
	}
	expect("they are made", "put Secret edge/d", "put Secret edge/none")
	for _, name := range []string{"a", "b", "c"} {
		if err := d.secret("edge", name).Delete(tls(name)); err != nil {
			t.Fatal(err)
		}
	}
	expect("most are deleted", "delete Secret edge/a", "delete Secret edge/b", "delete Secret edge/c")
	d.refer(all[4])
	expect("all but one are referred to no more", "delete Secret edge/d")
	if f := d.s.kinds[referred(all[0].To).id()]; f != nil {
		t.Error("a Secret that nothing refers to is read")
	}
	d.refer(all...)
	expect("again")
	if err := d.secret("edge", "a").Replace([]any{tls("a")}, ""); err != nil {
		t.Fatal(err)
	}
	expect("again listed", "put Secret edge/a")
}

// Of the Secrets that are referred to each cluster's source reads its own.
func TestSecretsOfTheCluster(t *testing.T) {
	west, east := reference("edge", "of-west", "apps"), reference("edge", "of-east", "apps")
	west.To.Origin, east.To.Origin = origin.New("west", origin.Kube), origin.New("east", origin.Kube)
	for cluster, want := range map[string]string{"": "edge/home", "west": "edge/of-west", "north": ""} {
		d := newDesk(t)
		d.s.Cluster, d.s.origin = cluster, origin.New(cluster, origin.Kube)
		d.refer(reference("edge", "home", "apps"), west, east)
		var followed []string
		for id := range d.s.kinds {
			if id.kind == "Secret" {
				followed = append(followed, id.only)
			}
		}
		if got := strings.Join(followed, " "); got != want {
			t.Errorf("cluster %q reads %q, want %q", cluster, got, want)
		}
	}
}

// If more Secrets are referenced than may be watched, the referring namespaces alternate, and problems name the objects
// that refer to the rest.
func TestSecretsAreBounded(t *testing.T) {
	var all []object.Reference
	for i := range 2000 {
		all = append(all, reference("edge", fmt.Sprint("s", i), "loud"))
	}
	all = append(all, reference("edge", "t1", "quiet"), reference("edge", "t2", "quiet"), reference("other", "o", "third"))
	chosen, beyond := chooseSecrets(all, "", maxSecrets)
	of := map[string]int{}
	for _, r := range chosen {
		of[r.By.Namespace]++
	}
	if len(chosen) != maxSecrets || len(chosen)+len(beyond) != len(all) || of["quiet"] != 2 || of["third"] != 1 {
		t.Errorf("%d chosen, %d beyond, %v", len(chosen), len(beyond), of)
	}
	if chosen, beyond := chooseSecrets(all, "other", maxSecrets); len(chosen) != 1 || len(beyond) != 0 {
		t.Errorf("where one namespace is read: %d chosen, %d beyond", len(chosen), len(beyond))
	}
	d := newDesk(t)
	d.refer(all...)
	followed := 0
	for id := range d.s.kinds {
		if id.kind == "Secret" {
			followed++
		}
	}
	p := d.s.Problems()
	named := slices.ContainsFunc(p, func(p object.Problem) bool {
		return p.Code == problem.NotAllowed && p.ID.Kind == "Gateway" && p.ID.Namespace == "loud" && strings.Contains(p.Message, "Secret edge/s")
	})
	if followed != maxSecrets || len(p) != 101 || !named {
		t.Errorf("%d are followed, %d problems, the first: %v", followed, len(p), p[0])
	}
}

// Of a Secret no more is kept than records are made of.
func TestSecretsAreStripped(t *testing.T) {
	s := &corev1.Secret{Data: map[string][]byte{"tls.key": []byte("k"), "password": []byte("p")}}
	referred(object.ID{Namespace: "n", Name: "s"}).strip(s)
	if _, there := s.Data["password"]; !there || len(s.Data["password"]) > 0 || string(s.Data["tls.key"]) != "k" {
		t.Errorf("left: %q", s.Data)
	}
}

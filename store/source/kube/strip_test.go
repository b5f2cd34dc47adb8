package kube

import (
	"encoding/json"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// emitted returns the object that the source emits.
func emitted(t *testing.T, name string, o runtime.Object) *object.Object {
	t.Helper()
	k := kind{version: "v1", kind: name}
	k.strip(o)
	out, err := k.object(origin.New("", origin.Kube), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Of a Pod all addresses are kept: the second one may not be claimed by others either. A single address is emitted
// once.
// Promise: security-workloads.md#who-has-a-machines-token
func TestAddressesOfPodsStay(t *testing.T) {
	for _, c := range []struct{ addresses, more []string }{{[]string{"10.1.0.1", "fd00::1"}, []string{"fd00::1"}}, {[]string{"10.1.0.1"}, nil}} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Status: corev1.PodStatus{PodIP: c.addresses[0]}}
		for _, ip := range c.addresses {
			pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: ip})
		}
		o := emitted(t, "Pod", pod)
		if read, problems := normal.ParsePod(o); len(problems) > 0 || read.Address != c.addresses[0] || !slices.Equal(read.More, c.more) {
			t.Errorf("%v: %+v %v of %s", c.addresses, read, problems, o.JSON)
		}
	}
}

// Of a Namespace the annotation stays that its services inherit, and no other.
func TestDistributionOfNamespacesStays(t *testing.T) {
	o := emitted(t, "Namespace", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: map[string]string{normal.DistributionAnnotation: "PreferClose", "note": "a"}}})
	if read, problems := normal.ParseNamespace(o); len(problems) > 0 || read.Distribution == 0 || len(o.Annotations) != 1 {
		t.Errorf("%+v %v, annotations %v", read, problems, o.Annotations)
	}
}

// Of a Secret the values that records contain are kept, including registry credentials, and of other values only their
// keys.
func TestKeysOfSecretsStay(t *testing.T) {
	for key, stays := range map[string]bool{"tls.crt": true, "tls.key": true, "cert": true, "key": true, "cacert": true, "crl": true, "ca.crt": true, "ca.crl": true, "tls.ocsp-staple": true,
		".dockerconfigjson": true, "password": false} {
		o := emitted(t, "Secret", &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "s"}, Data: map[string][]byte{key: []byte("value")}})
		var read struct{ Data map[string][]byte }
		if err := json.Unmarshal(o.JSON, &read); err != nil {
			t.Fatal(err)
		}
		if value, there := read.Data[key]; !there || (string(value) == "value") != stays {
			t.Errorf("%s: %q, want it to stay: %v", key, value, stays)
		}
	}
}

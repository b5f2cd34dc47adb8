package site

import (
	"crypto/tls"
	"crypto/x509"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Users believe each certificate in its Secret, for the host alone.
func TestSite(t *testing.T) {
	s, err := New()
	if err != nil {
		t.Fatal(err)
	}
	for _, serial := range []int64{2, 3} {
		text, err := s.Next("edge")
		if err != nil {
			t.Fatal(err)
		}
		var secret corev1.Secret
		if err := yaml.UnmarshalStrict(text, &secret); err != nil || secret.Name != Secret || secret.Namespace != "edge" {
			t.Fatalf("%v in %s/%s", err, secret.Namespace, secret.Name)
		}
		pair, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
		if err != nil {
			t.Fatal(err)
		}
		if got := pair.Leaf.SerialNumber.Int64(); got != serial || s.Serial() != serial {
			t.Errorf("certificate %d, said to be %d, want %d", got, s.Serial(), serial)
		}
		for host, good := range map[string]bool{Host: true, "other.example.com": false} {
			if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: s.Client().RootCAs, DNSName: host}); (err == nil) != good {
				t.Errorf("%s: %v", host, err)
			}
		}
	}
}

package registrar

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"time"

	"navarch.io/navarch/ca/serve"
	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/obs"
)

// path is the API path of CertificateSigningRequests, which have no namespace.
const path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

// Labels and annotations of the created objects. cert-manager reads the requested lifetime from its own annotation,
// other signers from spec.expirationSeconds.
const (
	managedBy    = "app.kubernetes.io/managed-by"
	manager      = "navarchd"
	forIdentity  = "navarch.io/identity"
	certManagers = "experimental.cert-manager.io/request-duration"
)

// request has the fields of a CertificateSigningRequest (k8s.io/api/certificates/v1) that this package uses.
type request struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Spec       spec     `json:"spec"`
	Status     state    `json:"status"`
}

type metadata struct {
	Name            string            `json:"name"`
	UID             string            `json:"uid,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
}

type spec struct {
	Request           []byte   `json:"request"`
	SignerName        string   `json:"signerName"`
	ExpirationSeconds int64    `json:"expirationSeconds,omitempty"`
	Usages            []string `json:"usages"`
}

type state struct {
	Conditions  []condition `json:"conditions,omitempty"`
	Certificate []byte      `json:"certificate,omitempty"`
}

type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// obtain creates a CertificateSigningRequest for a CSR, and waits until the signer has signed it. It returns the
// certificates as PEM, unverified. In all cases it deletes the created object.
func (r *Registrar) obtain(ctx context.Context, signer string, q serve.Registration) ([]byte, error) {
	made, err := r.create(ctx, signer, q)
	if made.Metadata.Name != "" {
		defer r.remove(made.Metadata.Name)
	}
	if err != nil {
		return nil, err
	}
	if err := r.approve(ctx, made, q); err != nil {
		return nil, err
	}
	return r.await(ctx, made)
}

// create creates the CertificateSigningRequest in the API server. After an error, made.Metadata.Name is the object's
// name if the object may exist. If it does not exist, the name is empty.
func (r *Registrar) create(ctx context.Context, signer string, q serve.Registration) (made request, err error) {
	var random [12]byte
	if _, err := rand.Read(random[:]); err != nil {
		return made, err
	}
	asked := request{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest",
		Metadata: metadata{Name: "navarch-" + hex.EncodeToString(random[:]), Labels: map[string]string{managedBy: manager},
			Annotations: map[string]string{forIdentity: q.Identity.String(), certManagers: q.TTL.String()}},
		Spec: spec{Request: q.CSR, SignerName: signer, ExpirationSeconds: int64(max(q.TTL, shortest) / time.Second),
			Usages: []string{"digital signature", "key encipherment", "server auth", "client auth"}}} // as istiod sets them
	if err := r.do(ctx, http.MethodPost, path, asked, &made); err != nil {
		var said *apiserver.Status
		if !errors.As(err, &said) { // the object may exist
			made.Metadata.Name = asked.Metadata.Name
		}
		return made, fmt.Errorf("make a CertificateSigningRequest for %s: %w", signer, err)
	}
	if !bytes.Equal(made.Spec.Request, q.CSR) || made.Spec.SignerName != signer {
		return made, fmt.Errorf("CertificateSigningRequest %s differs from the requested one: it is not approved",
			made.Metadata.Name) // an admission webhook changed it
	}
	return made, nil
}

// approve approves the object. Before the call, ca/serve has authenticated the identity, and Register has verified
// that the CSR names only that identity.
func (r *Registrar) approve(ctx context.Context, made request, q serve.Registration) error {
	made.APIVersion, made.Kind = "certificates.k8s.io/v1", "CertificateSigningRequest"
	// Without a resource version, annotations that other clients wrote meanwhile cause no conflict. A denial cannot be
	// overwritten, because the API server does not permit the removal of a denial.
	made.Metadata.ResourceVersion = ""
	made.Status.Conditions = append(made.Status.Conditions, condition{Type: "Approved", Status: "True", Reason: "Authenticated",
		Message: fmt.Sprintf("navarchd has authenticated %s, and the request names nothing else", q.Identity)})
	if err := r.do(ctx, http.MethodPut, path+"/"+made.Metadata.Name+"/approval", made, nil); err != nil {
		return fmt.Errorf("approve CertificateSigningRequest %s of %s: %w", made.Metadata.Name, made.Spec.SignerName, err)
	}
	return nil
}

// Pauses before reads of the object. Signers in the cluster need less than a second, other signers need seconds.
const (
	firstLook = 50 * time.Millisecond // the first pause; it doubles with each read
	longLook  = time.Second           // the longest pause
)

// await reads the object until it has a certificate, and returns the certificates as PEM. Errors: the request was
// denied or has failed (serve.ErrRefused), the object was replaced or cannot be read, or ctx ends.
func (r *Registrar) await(ctx context.Context, made request) ([]byte, error) {
	for pause := firstLook; ; pause = min(2*pause, longLook) {
		if err := loop.Pause(ctx, pause); err != nil {
			return nil, fmt.Errorf("%s has not signed CertificateSigningRequest %s in time: %w", made.Spec.SignerName, made.Metadata.Name, err)
		}
		var now request
		if err := r.do(ctx, http.MethodGet, path+"/"+made.Metadata.Name, nil, &now); err != nil {
			return nil, fmt.Errorf("read CertificateSigningRequest %s: %w", made.Metadata.Name, err)
		}
		if now.Metadata.UID != made.Metadata.UID {
			return nil, fmt.Errorf("CertificateSigningRequest %s was replaced by another object of the same name", made.Metadata.Name)
		}
		for _, c := range now.Status.Conditions {
			if (c.Type == "Denied" || c.Type == "Failed") && c.Status != "False" {
				return nil, fmt.Errorf("%w: %s says %s: %.60s: %.300s", serve.ErrRefused, made.Spec.SignerName, c.Type, c.Reason, c.Message)
			}
		}
		if len(now.Status.Certificate) > 0 {
			return now.Status.Certificate, nil
		}
	}
}

// remove deletes an object, even after the caller's context has ended. If this fails, the csrcleaner of Kubernetes
// deletes the object within hours.
func (r *Registrar) remove(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), cleaning)
	defer cancel()
	if err := r.do(ctx, http.MethodDelete, path+"/"+name, nil, nil); err != nil && !apiserver.IsStatus(err, http.StatusNotFound) {
		obs.SignerRequests.WithLabelValues("left").Inc()
		r.logged.Warn("a CertificateSigningRequest could not be deleted; Kubernetes deletes it within hours",
			"", obs.KeyName, name, obs.KeyError, err)
	}
}

// do sends a request to the API server, after a wait that keeps the process within requestRate.
func (r *Registrar) do(ctx context.Context, method, path string, in, out any) error {
	if err := r.pace.Wait(ctx); err != nil {
		return fmt.Errorf("too many requests to the API server: %w", err)
	}
	return r.cfg.API.Do(ctx, method, path, in, out)
}

package serve

import "time"

// Hooks are callbacks for metrics. Each may be nil. Many goroutines call them at once, some while they occupy a signing
// slot, so they must not block. A comment ends with the name of Istio's metric, if there is one.
type Hooks struct {
	Request func()                   // each certificate request: citadel_server_csr_count
	Issued  func(took time.Duration) // each success; took: the whole request. citadel_server_success_cert_issuance_count
	// Unauthenticated: the credential of a request or a report of roots is missing, not accepted or too old, or could
	// not be verified. citadel_server_authentication_failure_count
	Unauthenticated func()
	BadCSR          func() // the CSR, lifetime or CertSigner is not valid: citadel_server_csr_parsing_err_count
	// BadIdentity: the caller of a request or a report of roots has no identity or is revoked, or the request sets
	// ImpersonatedIdentity. citadel_server_id_extraction_err_count
	BadIdentity func()
	// SignFailed: signing or recording failed, or the Registrar failed or refused. Requests that BadCSR, BadIdentity or
	// Turned counts are not included. citadel_server_csr_sign_err_count
	SignFailed     func()
	Turned         func(code string)                 // refused or given up in the queue, or ErrBusy; code: name of the gRPC code
	Waited         func(first bool, d time.Duration) // d: time of an admitted request in the queue; first: no renewal by certificate
	HolderReported func()                            // a report of roots was stored
}

func (h *Hooks) fill() {
	for _, f := range []*func(){&h.Request, &h.Unauthenticated, &h.BadCSR, &h.BadIdentity, &h.SignFailed, &h.HolderReported} {
		if *f == nil {
			*f = func() {}
		}
	}
	if h.Issued == nil {
		h.Issued = func(time.Duration) {}
	}
	if h.Turned == nil {
		h.Turned = func(string) {}
	}
	if h.Waited == nil {
		h.Waited = func(bool, time.Duration) {}
	}
}

package serve

import "time"

// Hooks are callbacks for metrics. Each may be nil. Many goroutines call the hooks at once. Hooks must not block,
// because a calling goroutine may occupy a signing slot. A field's comment ends with the name of Istio's corresponding
// metric, if Istio has one.
type Hooks struct {
	Request func() // called for each certificate request. citadel_server_csr_count
	// Issued: a certificate was issued. The argument took is the duration of the request.
	// citadel_server_success_cert_issuance_count
	Issued func(took time.Duration)
	// Unauthenticated: the credential of a certificate request or a report of roots is missing, not accepted or too
	// old, or could not be verified. Cancelled requests do not count. citadel_server_authentication_failure_count
	Unauthenticated func()
	BadCSR          func() // the CSR, lifetime or CertSigner is not valid. citadel_server_csr_parsing_err_count
	// BadIdentity: the caller of a request or a report of roots has no identity or is revoked, or the request sets
	// ImpersonatedIdentity. citadel_server_id_extraction_err_count
	BadIdentity func()
	// SignFailed: signing or recording failed, or the Registrar failed or refused. It is not called for failures that
	// BadCSR, BadIdentity or Turned reports. citadel_server_csr_sign_err_count
	SignFailed func()
	// Turned: the queue refused a request or did not admit it in time, or the Registrar returned ErrBusy. The argument
	// code is the name of the gRPC code.
	Turned func(code string)
	// Waited: the queue admitted a request after the time d. The argument first is false for a renewal by certificate.
	Waited         func(first bool, d time.Duration)
	HolderReported func() // a report of roots was stored
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

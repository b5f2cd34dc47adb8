package model

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// command matches one command at the start of a text: its name, its arguments in parentheses, and a maximum length.
var command = regexp.MustCompile(`^%([A-Z0-9_]+)(?:\(([^)]*)\))?(:[0-9]{1,9})?%`)

// operator describes the arguments with which Envoy accepts a command.
type operator struct {
	accepts  func(arguments string) bool // for arguments that are not empty; nil: Envoy accepts no arguments
	required bool                        // Envoy refuses empty arguments
	length   bool                        // Envoy accepts a maximum length
	private  string                      // the reason why headers may not contain the command; empty: they may
}

// The arguments of several commands. Envoy refuses a line feed (%n) in the format of a time.
var (
	headerArgument   = regexp.MustCompile("^:?[!#$%&'*+.^_`|~0-9A-Za-z-]+(\\?(:?[!#$%&'*+.^_`|~0-9A-Za-z-]+)?)?$").MatchString
	metadataArgument = regexp.MustCompile(`^[ -~]+$`).MatchString
	stateArgument    = regexp.MustCompile(`^[0-9A-Za-z_./-]+(:(PLAIN|TYPED|FIELD:[0-9A-Za-z_./-]+))?$`).MatchString
	timeArgument     = regexp.MustCompile(`^([ -$&-~]|%[1-9]?f|%[-_0^#]?(E[0-9*]?|O)?[A-DF-NP-Za-mo-z])+$`).MatchString
	kindArgument     = regexp.MustCompile(`^(DYNAMIC|CLUSTER|UPSTREAM_HOST|ROUTE|LISTENER|VIRTUAL_HOST)(:[!-9;-~]+)+$`).MatchString
	serverArgument   = regexp.MustCompile(`^(SNI_ONLY|(SNI|HOST)_FIRST)(:(HOST|ORIG|ORIG_OR_HOST))?$`).MatchString
	durationArgument = regexp.MustCompile(`^[0-9A-Za-z_.-]+:[0-9A-Za-z_.-]+(:(ms|us|ns))?$`).MatchString
	pathArgument     = regexp.MustCompile(`^(WQ|NQ)(:(PATH|ORIG|ORIG_OR_PATH))?$`).MatchString
	statusArgument   = regexp.MustCompile(`^(CAMEL_STRING|SNAKE_STRING|NUMBER)$`).MatchString
	oneWord          = regexp.MustCompile(`^[0-9A-Za-z_./-]+$`).MatchString
)

// operators maps the names of commands to their arguments. It contains the commands of Envoy 1.37, except COALESCE.
// Newer versions accept all of them
// (https://www.envoyproxy.io/docs/envoy/v1.37.0/configuration/advanced/substitution_formatter).
var operators = func() map[string]operator {
	const extension = "not every build of Envoy has it"
	const secrets = "it reads environment variables of proxies, which may be secrets of others"
	out := map[string]operator{
		"DYNAMIC_METADATA":      {accepts: metadataArgument, required: true, length: true},
		"CLUSTER_METADATA":      {accepts: metadataArgument, required: true},
		"UPSTREAM_METADATA":     {accepts: metadataArgument, required: true},
		"FILTER_STATE":          {accepts: stateArgument, required: true, length: true},
		"UPSTREAM_FILTER_STATE": {accepts: stateArgument, required: true, length: true},
		"PER_REQUEST_STATE":     {accepts: oneWord, required: true},
		"QUERY_PARAM":           {accepts: metadataArgument, required: true, length: true},
		"GRPC_STATUS":           {accepts: statusArgument},
		"PATH":                  {accepts: pathArgument, length: true},
		"REQUESTED_SERVER_NAME": {accepts: serverArgument},
		"RESPONSE_CODE_DETAILS": {accepts: func(s string) bool { return s == "ALLOW_WHITESPACES" }},
		"COMMON_DURATION":       {accepts: durationArgument, required: true},
		"CEL":                   {accepts: IsAttribute, required: true, length: true, private: extension},
		"METADATA":              {accepts: kindArgument, required: true, length: true, private: extension},
		"ENVIRONMENT":           {accepts: oneWord, required: true, length: true, private: secrets},
	}
	for _, name := range strings.Fields("REQ RESP TRAILER REQUEST_HEADER RESPONSE_HEADER RESPONSE_TRAILER STREAM_INFO_REQ") {
		out[name] = operator{accepts: headerArgument, required: true, length: true}
	}
	for _, name := range strings.Fields(`START_TIME START_TIME_LOCAL EMIT_TIME EMIT_TIME_LOCAL DOWNSTREAM_PEER_CERT_V_START
		DOWNSTREAM_PEER_CERT_V_END UPSTREAM_PEER_CERT_V_START UPSTREAM_PEER_CERT_V_END`) {
		out[name] = operator{accepts: timeArgument}
	}
	for _, name := range strings.Fields(plainOperators) {
		out[name] = operator{}
	}
	return out
}()

// plainOperators lists the commands that have neither arguments nor a maximum length.
const plainOperators = `
ACCESS_LOG_TYPE BYTES_RECEIVED BYTES_RETRANSMITTED BYTES_SENT CONNECTION_ID CONNECTION_TERMINATION_DETAILS
CUSTOM_FLAGS DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_SENT
DOWNSTREAM_DIRECT_LOCAL_ADDRESS DOWNSTREAM_DIRECT_LOCAL_ADDRESS_ENDPOINT_ID
DOWNSTREAM_DIRECT_LOCAL_ADDRESS_WITHOUT_PORT DOWNSTREAM_DIRECT_LOCAL_PORT DOWNSTREAM_DIRECT_REMOTE_ADDRESS
DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT DOWNSTREAM_DIRECT_REMOTE_PORT DOWNSTREAM_HANDSHAKE_DURATION
DOWNSTREAM_HEADER_BYTES_RECEIVED DOWNSTREAM_HEADER_BYTES_SENT DOWNSTREAM_LOCAL_ADDRESS
DOWNSTREAM_LOCAL_ADDRESS_ENDPOINT_ID DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT DOWNSTREAM_LOCAL_DNS_SAN
DOWNSTREAM_LOCAL_EMAIL_SAN DOWNSTREAM_LOCAL_IP_SAN DOWNSTREAM_LOCAL_OTHERNAME_SAN DOWNSTREAM_LOCAL_PORT
DOWNSTREAM_LOCAL_SUBJECT DOWNSTREAM_LOCAL_URI_SAN DOWNSTREAM_PEER_CERT DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_1
DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_256 DOWNSTREAM_PEER_CHAIN_SERIALS DOWNSTREAM_PEER_DNS_SAN
DOWNSTREAM_PEER_EMAIL_SAN DOWNSTREAM_PEER_FINGERPRINT_1 DOWNSTREAM_PEER_FINGERPRINT_256 DOWNSTREAM_PEER_IP_SAN
DOWNSTREAM_PEER_ISSUER DOWNSTREAM_PEER_OTHERNAME_SAN DOWNSTREAM_PEER_SERIAL DOWNSTREAM_PEER_SUBJECT
DOWNSTREAM_PEER_URI_SAN DOWNSTREAM_REMOTE_ADDRESS DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT DOWNSTREAM_REMOTE_PORT
DOWNSTREAM_TLS_CIPHER DOWNSTREAM_TLS_SESSION_ID DOWNSTREAM_TLS_VERSION DOWNSTREAM_TRANSPORT_FAILURE_REASON
DOWNSTREAM_WIRE_BYTES_RECEIVED DOWNSTREAM_WIRE_BYTES_SENT DURATION FILTER_CHAIN_NAME GRPC_STATUS_NUMBER HOSTNAME
LOCAL_REPLY_BODY PROTOCOL REQUEST_DURATION REQUEST_HEADERS_BYTES REQUEST_TX_DURATION RESPONSE_CODE RESPONSE_DURATION
RESPONSE_FLAGS RESPONSE_FLAGS_LONG RESPONSE_HEADERS_BYTES RESPONSE_TRAILERS_BYTES RESPONSE_TX_DURATION ROUTE_NAME
STREAM_ID TLS_JA3_FINGERPRINT TLS_JA4_FINGERPRINT TRACE_ID UNIQUE_ID UPSTREAM_CLUSTER UPSTREAM_CLUSTER_RAW
UPSTREAM_CONNECTION_ID UPSTREAM_CONNECTION_POOL_READY_DURATION UPSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED
UPSTREAM_DECOMPRESSED_HEADER_BYTES_SENT UPSTREAM_HEADER_BYTES_RECEIVED UPSTREAM_HEADER_BYTES_SENT UPSTREAM_HOST
UPSTREAM_HOST_NAME UPSTREAM_HOST_NAME_WITHOUT_PORT UPSTREAM_LOCAL_ADDRESS UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT
UPSTREAM_LOCAL_DNS_SAN UPSTREAM_LOCAL_IP_SAN UPSTREAM_LOCAL_PORT UPSTREAM_LOCAL_URI_SAN UPSTREAM_PEER_CERT
UPSTREAM_PEER_DNS_SAN UPSTREAM_PEER_IP_SAN UPSTREAM_PEER_ISSUER UPSTREAM_PEER_SUBJECT UPSTREAM_PEER_URI_SAN
UPSTREAM_PROTOCOL UPSTREAM_REMOTE_ADDRESS UPSTREAM_REMOTE_ADDRESS_ENDPOINT_ID UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT
UPSTREAM_REMOTE_PORT UPSTREAM_REQUEST_ATTEMPT_COUNT UPSTREAM_TLS_CIPHER UPSTREAM_TLS_SESSION_ID UPSTREAM_TLS_VERSION
UPSTREAM_TRANSPORT_FAILURE_REASON UPSTREAM_WIRE_BYTES_RECEIVED UPSTREAM_WIRE_BYTES_SENT VIRTUAL_CLUSTER_NAME
`

// CheckFormat returns an error for a text that Envoy may refuse as a format string. It returns nil if Envoy 1.37 and
// later accept the text. Errors: a percent sign is not written %% and does not begin a command, the command is not one
// of Envoy 1.37 or is COALESCE, or its arguments are invalid. Because of one refused text, Envoy would refuse a whole
// listener or route configuration.
func CheckFormat(text string) error { return checkFormat(text, inSpan) }

// CheckLogFormat does the same as CheckFormat for an access log. It permits REQ_WITHOUT_QUERY, an extension that only
// access logs declare. The error has the same causes as that of CheckFormat.
func CheckLogFormat(text string) error { return checkFormat(text, inLog) }

// CheckHeaderFormat does the same as CheckFormat for the value of a header. It also refuses CEL and METADATA, which
// some builds of Envoy lack. It refuses ENVIRONMENT, which reads environment variables of the proxy, because users can
// add headers at the proxies of other users.
func CheckHeaderFormat(text string) error { return checkFormat(text, inHeader) }

// use says where a format string is used.
type use int

const (
	inSpan use = iota
	inLog
	inHeader
)

// checkFormat validates a format string.
func checkFormat(text string, in use) error {
	for {
		at := strings.IndexByte(text, '%')
		if at < 0 {
			return nil
		}
		if text = text[at:]; strings.HasPrefix(text, "%%") {
			text = text[2:]
			continue
		}
		found := command.FindStringSubmatch(text)
		if found == nil {
			return errors.New("no format string: a percent sign is written %%")
		}
		whole, name, arguments, length := found[0], found[1], found[2], found[3]
		of, known := operators[name]
		if name == "REQ_WITHOUT_QUERY" && in == inLog {
			of, known = operators["REQ"]
		}
		switch {
		case !known:
			return fmt.Errorf("no format string: %s is no command that Envoy knows", whole)
		case in == inHeader && of.private != "":
			return fmt.Errorf("%s is not allowed in headers: %s", whole, of.private)
		case arguments == "" && of.required, arguments != "" && (of.accepts == nil || !of.accepts(arguments)),
			length != "" && !of.length:
			return fmt.Errorf("no format string: Envoy refuses the arguments of %s", whole)
		}
		text = text[len(whole):]
	}
}

// attribute, quoted and reserved match parts of CEL expressions. attribute is an attribute that Envoy has without
// Istio's filters, for instance request.host or request.headers['x-team']
// (https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/advanced/attributes). reserved is a word of CEL
// that cannot be the name of a field.
var (
	attribute = regexp.MustCompile(`^(request|response|connection|upstream|source|destination|xds|metadata)` +
		`(\.[a-z_]+|\[('[^[:cntrl:]'"%()\\]+'|"[^[:cntrl:]'"%()\\]+")\])+$`)
	quoted   = regexp.MustCompile(`'[^']*'|"[^"]*"`)
	reserved = regexp.MustCompile(`\.(in|true|false|null)\b`)
)

// IsAttribute reports whether a CEL expression is one attribute that Envoy has without Istio's filters.
func IsAttribute(expression string) bool {
	return attribute.MatchString(expression) && !reserved.MatchString(quoted.ReplaceAllLiteralString(expression, ""))
}

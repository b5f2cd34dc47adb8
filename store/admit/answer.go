package admit

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func encode(review *admissionv1.AdmissionReview) ([]byte, error) { return json.Marshal(review) }

// Allow admits an object as it is.
func Allow(warnings ...string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true, Warnings: Warnings(warnings)}
}

// Refuse is the answer to an object that is not valid: kubectl shows the message after the webhook's name.
func Refuse(reason metav1.StatusReason, message string, warnings ...string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Warnings: Warnings(warnings),
		Result: &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: reason, Message: message}}
}

// What API servers let through of warnings, in runes: of one, and of all of a request together, where other webhooks' warnings and its own
// are counted too (k8s.io/apiserver/pkg/endpoints/filters/warning.go).
const (
	maxWarning  = 256
	maxWarnings = 4096
)

// Warnings cuts texts to what API servers let through: each of at most 256 characters, and of 4,096 in all; the last one says how many were
// left out. Texts that are the same are one.
func Warnings(texts []string) []string {
	const moreOf = 64 // room for the line that counts the others
	var out []string
	seen, total := map[string]bool{}, 0
	for i, text := range texts {
		text = shorten(text, maxWarning)
		if seen[text] || text == "" {
			continue
		}
		seen[text] = true
		if total += utf8.RuneCountInString(text); total > maxWarnings-moreOf {
			return append(out, fmt.Sprintf("%d more warnings are left out", len(texts)-i))
		}
		out = append(out, text)
	}
	return out
}

// shorten cuts a text to a number of characters, and leaves out what no header may have: line breaks and what is no UTF-8.
func shorten(text string, most int) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "")), " ")
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-3]) + "..."
}

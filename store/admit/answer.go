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

// Allow returns a response that admits an object unchanged. The warnings are shortened as by Warnings.
func Allow(warnings ...string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true, Warnings: Warnings(warnings)}
}

// Refuse returns a response that refuses an invalid object, with code 422. kubectl shows the message after the
// webhook's name. The warnings are shortened as by Warnings; the message is not shortened.
func Refuse(reason metav1.StatusReason, message string, warnings ...string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Warnings: Warnings(warnings),
		Result: &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: reason, Message: message}}
}

// Limits of API servers for warnings, in runes. The limit maxWarnings applies to all warnings of a request, including
// those of the API server and of other webhooks. If the warnings of a request exceed maxWarnings, the API server cuts
// each to maxWarning (k8s.io/apiserver/pkg/endpoints/filters/warning.go).
const (
	maxWarning  = 256
	maxWarnings = 4096
)

// Warnings returns texts shortened to the limits of API servers: 256 characters each, and 4,096 in total. If texts do
// not fit, the last element states the number of texts that are left out. That number includes repeated and empty
// texts. Equal texts are merged, and empty texts are removed. Each run of white space becomes one space, and invalid
// UTF-8 is removed. The result is nil if no text remains. The argument is not changed.
func Warnings(texts []string) []string {
	const moreOf = 64 // characters that are reserved for the text about omitted warnings
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

// shorten cuts a text to a number of characters. It replaces each run of white space by one space, and removes invalid
// UTF-8, because a header must not contain line breaks or invalid UTF-8.
func shorten(text string, most int) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "")), " ")
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-3]) + "..."
}

package serve

import "github.com/fencepost/fencepost/shared/web"

// Optional is a text that a body may omit. If it is present it must not be empty.
type Optional struct {
	text  string
	given bool
}

// UnmarshalText accepts any text; [Optional.Of] checks it.
func (o *Optional) UnmarshalText(text []byte) error {
	o.text, o.given = string(text), true
	return nil
}

// of returns the text of the field; "" if the body omits it.
func (o Optional) Of(field string) (string, error) {
	if o.given && o.text == "" {
		return "", web.FieldProblem(field, "is empty: give it a value, or leave it out")
	}
	return o.text, nil
}

{{- define "gpustack-delivery.labels" -}}
app.kubernetes.io/name: gpustack-delivery
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "gpustack-delivery.selector" -}}
app.kubernetes.io/name: gpustack-delivery
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "gpustack-delivery.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

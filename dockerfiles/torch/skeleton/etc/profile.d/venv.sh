# shellcheck shell=sh
# A login shell (ssh, `bash -l`, many job launchers) starts from the distribution's PATH; put the image's Python back.
case ":$PATH:" in
  *:/opt/venv/bin:*) ;;
  *) PATH=/opt/venv/bin:$PATH ;;
esac
